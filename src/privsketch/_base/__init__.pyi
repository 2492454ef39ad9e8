# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .elementary import cosine_sine as cosine_sine
from .elementary import exponential as exponential
from .elementary import natural_log as natural_log
from .formats import canonical_json as canonical_json
from .formats import document as document
from .formats import fingerprint as fingerprint
from .formats import pack_sketch as pack_sketch
from .formats import unpack_sketch as unpack_sketch
from .notebook import MAX_HTML_ROWS as MAX_HTML_ROWS
from .notebook import described as described
from .notebook import shown as shown
from .notebook import table as table
from .threads import cached_once as cached_once
from .threads import chunks as chunks
from .threads import in_threads as in_threads
from .threads import one_thread as one_thread
