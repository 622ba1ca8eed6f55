"""The product: a diffusion scan in, a tensor with its maps and its uncertainty out.

``tensorldm.reconstruct(...)`` is ``api.reconstruct``. Import binds the name of a package to the package itself, so the
package can be called; it passes the call on.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorldm.reconstruct.result import Reconstruction


class _Callable(ModuleType):
    """A package that is also the function it is named after."""

    def __call__(self, *arguments: Any, **options: Any) -> "Reconstruction":
        from tensorldm.reconstruct.api import reconstruct

        return reconstruct(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
