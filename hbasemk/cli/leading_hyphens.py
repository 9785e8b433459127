"""Commands with arguments that may begin with a hyphen, such as negative numbers."""

from __future__ import annotations

import click


class HyphenCommand(click.Command):
    """A command that takes some texts with a leading hyphen as arguments; :meth:`is_argument` says which.

    click would read the letters of such a text as options. So it receives all arguments after a ``--``.
    """

    def is_argument(self, text: str) -> bool:
        """Return whether a text of several characters, a hyphen first, is an argument."""
        raise NotImplementedError

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the options, and the arguments in their order; raise UsageError for an option that does not exist."""
        given = [one for one in self.get_params(context) if isinstance(one, click.Option)]
        known = {name for one in given for name in one.opts}
        with_value = {name for one in given if not one.is_flag for name in one.opts}
        options: list[str] = []
        arguments: list[str] = []
        rest = iter(args)
        for text in rest:
            if text == "--":
                arguments += rest
            elif text[:1] != "-" or text == "-" or self.is_argument(text):
                arguments.append(text)
            elif (text.partition("=")[0] if text.startswith("--") else text[:2]) not in known:
                raise click.UsageError(
                    f"no such option: {text}; put -- before the arguments if one of them begins with -", context
                )
            else:
                options.append(text)
                if _needs_value(text, with_value):
                    value = next(rest, None)
                    if value is None:
                        # Without a --, which would become its value: click reports that it lacks one.
                        return super().parse_args(context, options)
                    options.append(value)
        return super().parse_args(context, [*options, "--", *arguments])


class DurationCommand(HyphenCommand):
    """A command with a duration as an argument; the type of the argument rejects a negative one."""

    def is_argument(self, text: str) -> bool:
        return text[1].isdigit()


def _needs_value(text: str, with_value: set[str]) -> bool:
    """Return whether the next text is the value of an option, or of the last of several short options in one text."""
    if text.startswith("--"):
        return text in with_value
    found = [place for place, letter in enumerate(text) if f"-{letter}" in with_value]
    return found[:1] == [len(text) - 1]
