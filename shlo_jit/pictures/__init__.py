"""Pictures of programs: the graph of steps, the lifetimes of values in memory, and a roofline chart.

Each picture is one file. Pictures are built of elements (`xml.etree`), never of pasted text, and have no external
references: no network, no libraries, no fonts. Scripts only add tooltips and highlights.
"""
