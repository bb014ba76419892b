"""The kinds of entries, by what they are about.

Files in `data/` hold them as YAML or JSON; `load.py` reads them strictly and knows what each kind is called there.
Versions are strings as upstream spells them ("0.18.0rc1"); `versions.py` orders them.
"""
