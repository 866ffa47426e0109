"""`ttpfl flower`: create a federation of real sites, try it on this machine, and manage its keys."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttpfl.cli.options import argument, file_option, flag, option

if TYPE_CHECKING:
    from ttpfl.flower.folder import Federation

app = typer.Typer(help="Set up and run a federation of real sites on Flower.", no_args_is_help=True)

Home = Annotated[Path, argument("Federation folder.", file_okay=False, metavar="FOLDER")]
Site = Annotated[str, argument("Site name.")]
Folder = Annotated[Path, typer.Argument(help="The site's folder.", file_okay=False, exists=True)]
PublicKey = Annotated[Path | None, file_option("New public key, if the site created its own.")]


@app.callback()
def needs_flower(context: typer.Context) -> None:
    """Report a missing extra or another version of Flower clearly."""
    from ttpfl.flower.version import check_flower

    if context.invoked_subcommand != "noise":  # which only does arithmetic
        check_flower()


def _read(home: Path) -> "Federation":
    from ttpfl.flower.folder import Federation

    return Federation.read(home)


@app.command()
def init(
    home: Home,
    sites: Annotated[str, option("Number of sites, or their comma-separated names.")] = "3",
    host: Annotated[str, option("Host name or address that sites connect to.")] = "127.0.0.1",
    port: Annotated[int | None, option("Server port.", "a free one")] = None,
    data: Annotated[
        str | None, option("Give each site a client of this data set, for a trial.", False)
    ] = None,
) -> None:
    """Create a federation: certificates, keys, scripts, configuration and instructions."""
    from ttpfl.flower.create import create

    names = [f"site-{number}" for number in range(int(sites))] if sites.isdecimal() else sites.split(",")
    federation = create(home, names, host, port)
    if data is not None:
        from ttpfl.flower.trial_data import fill

        fill(federation, data)
    typer.echo(f"{federation.home}: created federation {federation.name} of {', '.join(federation.sites)}")
    typer.echo(f"server address: {federation.address}; next steps: {federation.home / 'README.md'}")


@app.command()
def up(home: Home) -> None:
    """Start the server and all sites on this machine, with TLS and node keys."""
    from ttpfl.flower import loopback

    loopback.up(_read(home))
    status(home)


@app.command()
def status(home: Home) -> None:
    """Show what runs on this machine, and which sites are registered and connected."""
    from ttpfl.flower import loopback

    for name, words in loopback.status(_read(home)).items():
        typer.echo(f"{name}: {words}")


@app.command()
def down(home: Home) -> None:
    """Stop what `ttpfl flower up` started."""
    from ttpfl.flower import loopback

    loopback.down(_read(home))
    status(home)


@app.command()
def register(home: Home) -> None:
    """Register all new sites. The server must be running."""
    from ttpfl.flower.control import register_all

    typer.echo(f"registered: {', '.join(register_all(_read(home))) or 'no new site'}")


@app.command()
def rotate(home: Home, site: Site, public_key: PublicKey = None) -> None:
    """Replace a site's key. Restart the site with the new one."""
    from ttpfl.flower import control

    control.rotate(_read(home), site, public_key)
    typer.echo(f"{site} has a new key; the old one is revoked")


@app.command()
def revoke(home: Home, site: Site) -> None:
    """Revoke a site's key."""
    from ttpfl.flower import control

    control.revoke(_read(home), site)
    typer.echo(f"the key of {site} is revoked")


@app.command()
def renew(home: Home) -> None:
    """Renew the server certificate and the scripts. Restart the server afterwards."""
    from ttpfl.flower import create
    from ttpfl.flower.folder import VERSION

    federation = _read(home)
    create.renew(federation)
    typer.echo("server certificate renewed: restart the server")
    if federation.version != VERSION:
        typer.echo("start scripts renewed: send start.sh, site.service and README.md to each site")


@app.command()
def serve(home: Home) -> None:
    """Run the server. Sites use its port; commands use a local socket."""
    from ttpfl.flower.superlink import serve

    serve(_read(home))


@app.command()
def join(
    folder: Folder,
    superlink: Annotated[str, option("Server as host:port.")],
    _port: Annotated[int | None, typer.Option("--port", hidden=True)] = None,  # of older start scripts
) -> None:
    """Run a site. It runs the installed ttpfl and refuses every other app."""
    from ttpfl.flower.site_node import join

    join(folder, superlink)


@app.command()
def runs(home: Home) -> None:
    """List the newest runs."""
    from ttpfl.flower import control

    for number, status in control.runs(_read(home)).items():
        typer.echo(f"{number}: {status}")


@app.command()
def stop(home: Home, run: Annotated[int, typer.Argument(help="Run number.", min=0)]) -> None:
    """Stop a run. `ttpfl train` or `learn` with --resume continues it."""
    from ttpfl.flower import control

    control.stop_run(_read(home), run)
    typer.echo(f"run {run} stopped")


@app.command()
def key(folder: Folder) -> None:
    """Create a site's key pair. Send key.pub to the server's operator."""
    from ttpfl.flower.certificates import make_node_key
    from ttpfl.flower.identity import fingerprint_of

    make_node_key(folder / "key")
    typer.echo(f"keep {folder / 'key'} here; send {folder / 'key.pub'} to the server's operator")
    typer.echo(f"fingerprint: {fingerprint_of((folder / 'key.pub').read_bytes())}")


@app.command()
def noise(
    epsilon: Annotated[float, option("Total privacy budget of all rounds.")],
    rounds: Annotated[int, option("Rounds that a site participates in.", min=1)],
    delta: Annotated[float, option("Delta of (epsilon, delta) differential privacy.")] = 1e-5,
    local: Annotated[bool, flag("--local", "Compute local noise, which each site adds.")] = False,
) -> None:
    """Compute the --noise for a privacy budget."""
    from ttpfl.federation.privacy.accountant import SENSITIVITY, noise_for

    multiplier = noise_for(epsilon, rounds, delta, SENSITIVITY["local" if local else "central"])
    typer.echo(f"{multiplier:.6g}")
