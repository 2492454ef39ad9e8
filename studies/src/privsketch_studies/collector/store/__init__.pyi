# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .tables import events as events
from .tables import members as members
from .tables import studies as studies
from .tables import uploads as uploads
