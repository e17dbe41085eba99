"""Pictures of programs: what runs after what, where values live, how near steps are to the machine's limits.

A file for each picture. They are made of elements (`xml.etree`), never of pasted text, and need nothing from elsewhere:
no network, no libraries, no fonts; scripts only add tooltips and highlights.
"""
