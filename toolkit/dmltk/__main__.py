"""The command line: ``dmltk`` and ``python -m dmltk``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 a user's error, 1 a failure, 130 interrupted.

    Args:
        argv: arguments without the program's name; None takes the process's.
    """
    import click

    from dmltk.cli import cli
    from dmltk.errors import DmltkError, UserError

    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        status = cli.main(words, prog_name="dmltk", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except (click.ClickException, DmltkError) as error:
        if debug:
            raise
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"dmltk: {' '.join(said.split())}", err=True)
        sys.exit(2 if isinstance(error, click.UsageError | UserError) else 1)
    except (KeyboardInterrupt, click.Abort):
        click.echo("dmltk: interrupted; a run goes on with the same command and --resume", err=True)
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        click.echo(f"dmltk: {said} (a traceback with --debug)", err=True)
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
