"""Settings: command line, then environment (``HEADRACE_…``), then a TOML file, then defaults.

The file is the one given by ``--config`` or ``HEADRACE_CONFIG``, else ``headrace.toml`` in the working directory if
there is one. Its keys are the names of the fields below; an unknown one is an error, so that a slip of the pen is seen.
"""

from __future__ import annotations

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from api.limits import MAX_BODY_BYTES
from domains.sharding import SHARDS_MAX
from headrace.errors import HeadraceError
from headrace.sizes import parse_size

DEFAULT_FILE = Path("headrace.toml")

Size = Annotated[int, BeforeValidator(parse_size)]


class SettingsError(HeadraceError):
    """A setting is wrong; the message is one line that says which, where from, and what would be right."""

    code = "bad_setting"


class Settings(BaseSettings):
    """All settings. Each is also a flag of ``headrace serve`` (``url``: of the commands that call a server)."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", extra="forbid")

    data: Path = Field(default=Path("headrace-data"), description="directory for tables, logs and readers")
    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 for all")
    port: int = Field(default=8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    memory_limit: Size = Field(default=512_000_000, description="bytes of state and readers, obeyed by evicting")
    domains: int = Field(default=1, ge=1, le=64, description="domains that the graph is split over")
    shards: int = Field(
        default=1, ge=1, le=SHARDS_MAX, description="shards of every table and view; fixed at the first start"
    )
    read_timeout: float = Field(default=5.0, gt=0, le=3600, description="seconds that a read waits for its answer")
    max_body_size: Size = Field(default=MAX_BODY_BYTES, description="greatest request body in bytes")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="what is logged: debug, info, warning, error"
    )
    url: str = Field(default="http://127.0.0.1:8080", description="the server that client commands call")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """First come, first served. The file's values are handed to the class as ``_file`` by ``load``."""
        del dotenv_settings, file_secret_settings
        assert isinstance(init_settings, InitSettingsSource)
        file = init_settings.init_kwargs.pop("_file", {})
        return init_settings, env_settings, InitSettingsSource(settings_cls, file)


def load(config: Path | None = None, **given: Any) -> Settings:
    """The settings in force; values of None in ``given`` count as not given. Raises SettingsError."""
    named = config or (Path(os.environ["HEADRACE_CONFIG"]) if os.environ.get("HEADRACE_CONFIG") else None)
    path = named or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    file = {} if path is None else _read(path)
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(_file=file, **flags)  # type: ignore[call-arg]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        origin = _origin(name, flags, path)
        raise SettingsError(f'setting "{name}" from {origin}: {first["msg"].removeprefix("Value error, ")}') from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f'cannot read the settings file "{path}": {error.strerror}') from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f'the settings file "{path}" is not TOML: {error}') from error
    for name in values:
        if name not in Settings.model_fields:
            near = get_close_matches(name, Settings.model_fields, 1)
            known = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(Settings.model_fields)}"
            raise SettingsError(f'unknown setting "{name}" in "{path}"; {known}')
    return values


def _origin(name: str, flags: dict[str, Any], path: Path | None) -> str:
    if name in flags:
        return "the command line"
    variable = f"HEADRACE_{name.upper()}"
    return f"the environment ({variable})" if variable in os.environ else f'"{path}"'
