import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'ttpfl[flower]'")
