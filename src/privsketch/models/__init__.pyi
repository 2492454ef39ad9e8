# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .base import MAX_LINE_LENGTH as MAX_LINE_LENGTH
from .base import MAX_TABLE_LINES as MAX_TABLE_LINES
from .base import center_lines as center_lines
from .base import nearest as nearest
from .drawing.centers import INTERVAL as INTERVAL
from .drawing.centers import MAX_TABLE_ROWS as MAX_TABLE_ROWS
from .drawing.centers import ellipse_of as ellipse_of
