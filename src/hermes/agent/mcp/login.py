"""Signing in to an MCP server at an address (OAuth): by a person in a browser, or as a program.

A person signs in once (`hermes mcp login NAME`); what that gave is kept in a file and renewed. A
program signs in with a secret or with a key of its own, each time anew. Where `issuer` is set a
program gives itself away to that authorization server only, wherever the MCP server points.
"""

import asyncio
import json
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import AnyUrl

from hermes.config.atomic import write_atomic
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.settings.agent import McpServerSettings

LOGIN_SECONDS = 300.0


def sign_in(
    name: str,
    settings: McpServerSettings,
    tokens: Path,
    on_login: Callable[[str], Awaitable[None]] | None,
) -> httpx2.Auth:
    """Return what signs the requests to a server; `on_login` shows a person where to sign in."""
    kept = TokenFile(tokens / f"{name}.json")
    if settings.auth == "client_credentials":
        return _as_program(name, settings, kept)
    callback = LoginCallback(settings.oauth_port)
    if settings.client_id:
        kept.client = OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret or None,
            redirect_uris=[AnyUrl(callback.address)],
            token_endpoint_auth_method="client_secret_basic" if settings.client_secret else "none",
        )

    async def redirect(address: str) -> None:
        if on_login is None:
            raise HermesError(f"{name} wants somebody to sign in.", hint=f"hermes mcp login {name}")
        await callback.start()
        try:
            await on_login(address)
        except BaseException:
            callback.close()
            raise

    by_person = SignedIn(
        settings.url,
        OAuthClientMetadata(
            client_name="Hermes",
            redirect_uris=[AnyUrl(callback.address)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        kept,
        redirect,
        callback.wait,
        settings.client_metadata_url or None,
    )
    by_person.scope = settings.scope
    return by_person


def _as_program(name: str, settings: McpServerSettings, kept: "TokenFile") -> httpx2.Auth:
    own, issuer = (settings.url, kept, settings.client_id), settings.issuer or None
    by_program: BySecret | ByKey
    with warnings.catch_warnings():
        # Without `issuer` the server says whom to show the secret to, as its operator may want.
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        if settings.client_key:
            signed = SignedJWTParameters(
                issuer=settings.client_id,
                subject=settings.client_id,
                signing_key=_private_key(name, settings.client_key),
                signing_algorithm=settings.client_key_algorithm,
            )
            by_program = ByKey(*own, signed.create_assertion_provider(), issuer=issuer)
        else:
            by_program = BySecret(*own, settings.client_secret, issuer=issuer)
    by_program.scope = settings.scope
    return by_program


def _private_key(name: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"mcp_servers.{name}.client_key cannot be read: {error.strerror}.",
            hint="It is the path of a private key in PEM form.",
        ) from error


class Scoped(OAuthClientProvider):
    """Asks for the scope of the configuration; the SDK asks for all that the server names."""

    scope = ""

    async def _perform_authorization(self) -> httpx2.Request:
        if self.scope:
            self.context.client_metadata.scope = self.scope
        return await super()._perform_authorization()


class BySecret(Scoped, ClientCredentialsOAuthProvider):
    pass


class ByKey(Scoped, PrivateKeyJWTOAuthProvider):
    pass


class SignedIn(Scoped):
    """Knows after a restart when a token ends and where it is renewed."""

    async def _initialize(self) -> None:
        await super()._initialize()
        tokens = cast(TokenFile, self.context.storage)
        tokens.issued_by = lambda: self.context.oauth_metadata
        kept = await asyncio.to_thread(tokens.read)
        self.context.token_expiry_time = kept.get("expires_at")
        if metadata := kept.get("server"):
            self.context.oauth_metadata = OAuthMetadata.model_validate(metadata)


class TokenFile:
    """What signing in gave, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.client: OAuthClientInformationFull | None = None
        """What the configuration says of the client, in place of a registration."""
        self.issued_by: Callable[[], OAuthMetadata | None] = lambda: None

    def read(self) -> dict[str, Any]:
        try:
            read: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return read

    async def _kept(self, **values: Any) -> None:
        def write() -> None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(self._path, json.dumps(self.read() | values))

        await asyncio.to_thread(write)

    async def get_tokens(self) -> OAuthToken | None:
        found = (await asyncio.to_thread(self.read)).get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        server = self.issued_by()
        await self._kept(
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires_at=time.time() + tokens.expires_in if tokens.expires_in else None,
            server=server.model_dump(mode="json", exclude_none=True) if server else None,
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self.client is not None:
            return self.client
        found = (await asyncio.to_thread(self.read)).get("client")
        return OAuthClientInformationFull.model_validate(found) if found else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._kept(client=client_info.model_dump(mode="json", exclude_none=True))


class LoginCallback:
    """Waits on loopback for the browser that comes back from signing in."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/callback"
        self._port = port
        self._found: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._found = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port)
        except OSError as error:
            raise HermesError(
                f"Port {self._port} is needed for signing in and is taken.",
                hint="Set oauth_port of the server to another one.",
            ) from error

    async def wait(self) -> AuthorizationCodeResult:
        assert self._found is not None
        try:
            async with asyncio.timeout(LOGIN_SECONDS):
                return await self._found
        finally:
            self.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = (await reader.readline()).decode("latin-1").split(" ")
            parts = urlsplit(line[1] if len(line) > 1 else "")
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            good = parts.path == "/callback" and "code" in query
            said = "You are signed in. This window can be closed." if good else "Signing in failed."
            status = "200 OK" if good else "400 Bad Request"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(said)}\r\n"
                f"Connection: close\r\n\r\n{said}".encode()
            )
            await writer.drain()
            if self._found is not None and not self._found.done() and parts.path == "/callback":
                if good:
                    self._found.set_result(
                        AuthorizationCodeResult(
                            code=query["code"], state=query.get("state"), iss=query.get("iss")
                        )
                    )
                else:
                    why = (
                        query.get("error_description") or query.get("error") or "no code came back"
                    )
                    self._found.set_exception(HermesError(f"Signing in failed: {why}."))
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()
