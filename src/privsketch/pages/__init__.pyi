# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .comparison.page import comparison_page as comparison_page
from .comparison.result import ClusterShares as ClusterShares
from .comparison.result import ColumnChange as ColumnChange
from .comparison.result import SourceComparison as SourceComparison
from .report.clusters import picture_of as picture_of
from .report.fields import Parts as Parts
from .report.fields import center_rows as center_rows
from .report.fields import field_text as field_text
from .report.fields import share_text as share_text
from .report.fields import width_rows as width_rows
from .report.html import PAGE_VERSION as PAGE_VERSION
from .report.html import report_page as report_page
from .report.html import save_report as save_report
from .report.spending import spending_page as spending_page
from .report.tables import MAX_PART_COLUMNS as MAX_PART_COLUMNS
from .report.tables import tables_of as tables_of
from .report.words import words_of as words_of
