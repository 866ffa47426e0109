"""Training and rate learning over real sites, carried by Flower (the extra `ttpfl[flower]`).

Data flows as on one machine: `ttpfl.federation` runs the rounds and hands jobs to an engine. Here the engine
sends them as messages (`engine.py`), each site works on its own data (`site_app.py`), and the replies come
back in the order of the jobs.
"""
