"""One module a kind: each function ``check_*`` holds a part to one property.

Each module also has ``use(part)``, the part's plain job on tiny data, of which the checks for all
kinds make use.
"""
