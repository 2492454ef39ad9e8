"""Private clustering for those who hold all records: mechanisms that read them several times.

Sketches read records once, and several holders can add them up. One holder who may read them
again and again can do better in many columns: every pass asks a question that the answers of
earlier passes have made sharper, and pays for it with a share of one budget.
"""
