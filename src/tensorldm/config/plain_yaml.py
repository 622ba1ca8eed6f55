"""YAML of settings: plain values, written out. The only module that knows PyYAML, loaded when YAML is read."""

from typing import Any

import yaml


class PlainLoader(yaml.SafeLoader):
    """Settings without aliases: nine lines of them can unfold to more than any memory holds."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A node of the document, as long as it is written out."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name), which settings may not have")
        return super().compose_node(parent, index)


def plain_yaml(text: str) -> Any:
    """The value of a YAML text; whatever PyYAML stumbles over (a 13th month, a tag that lies) is a ``YAMLError``."""
    try:
        loader = PlainLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise yaml.YAMLError(f"a value that is not what it looks like: {error}") from error
