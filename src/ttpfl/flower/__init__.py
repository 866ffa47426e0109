"""The same training and rate learning over real sites, carried by Flower (the extra `ttpfl[flower]`).

Data flows as it does on one machine: `ttpfl.federation` runs the rounds and hands jobs to an engine. Here the
engine sends them as messages (`engine.py`), a site does the work on its own data (`site_app.py`), and the
answers come back in the order of the jobs.
"""
