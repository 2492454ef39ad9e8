# Names of this folder that others may use; `__init__.py` imports one when it is first used.
from .keys import destroy_key as destroy_key
from .keys import is_locked as is_locked
from .keys import signature_within_rules as signature_within_rules
from .signature import SEALED_KINDS as SEALED_KINDS
from .signature import Signature as Signature
from .signature import digit_groups as digit_groups
from .signature import is_valid_signature as is_valid_signature
from .signature import key_fingerprint as key_fingerprint
from .signature import sign_message as sign_message
from .signature import signature_path as signature_path
from .signature import signed_message as signed_message
from .trusted import forget as forget
from .trusted import pin as pin
from .trusted import pinned_keys as pinned_keys
from .trusted import pins_folder as pins_folder
from .trusted import resolve_key as resolve_key
