"""The pictures of the README and the site's front page, and the sentences under them.

python -m examples.pictures            draws them, and writes their sentences into the README
python -m examples.pictures measure    the same, after KSD and L-BFGS-B have run on the digits again

Each is made of committed results alone: those of examples/quickstart.py (docs/_static), of
examples/physics, of examples/paper and of examples/benchmarks/nets_of_today.py, whose pictures
appear once it has run on a GPU. Call it again whenever one of these has changed; a test
says so if it was forgotten.
"""
