"""What the SDK's server calls: a handler per method, each of which looks names up at gate 3 before it does anything."""

import json
from collections.abc import Mapping
from typing import Any

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    TextContent,
    TextResourceContents,
)

from quenchz_reference.caller import current_caller
from quenchz_reference.scopes import Access, Catalogue, Perform
from quenchz_reference.service import CannotAnswerError, RatesService

Context = ServerRequestContext[Any]


class Handlers:
    """One handler per method. Every one that looks up a name asks `Access.granted` first.

    Args:
        catalogue: what exists.
        access: the decisions of gate 3.
        service: what answers, behind gate 4.
    """

    def __init__(self, catalogue: Catalogue, access: Access, service: RatesService) -> None:
        self._catalogue = catalogue
        self._access = access
        self._service = service
        self.bus = InMemorySubscriptionBus()
        self.streams = ListenHandler(self.bus)

    async def list_tools(self, _: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools granted to the caller, on one page."""
        _refuse_cursor(params)
        tools = self._access.listing(current_caller(), self._catalogue.tools)
        return ListToolsResult(tools=tools, cache_scope="private")

    async def list_prompts(self, _: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        """The prompts granted to the caller, on one page."""
        _refuse_cursor(params)
        prompts = self._access.listing(current_caller(), self._catalogue.prompts)
        return ListPromptsResult(prompts=prompts, cache_scope="private")

    async def list_resources(self, _: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """The resources granted to the caller, on one page."""
        _refuse_cursor(params)
        resources = self._access.listing(current_caller(), self._catalogue.resources)
        return ListResourcesResult(resources=resources, cache_scope="private")

    async def list_templates(self, _: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        """The resource templates granted to the caller, on one page."""
        _refuse_cursor(params)
        templates = self._access.listing(current_caller(), self._catalogue.templates)
        return ListResourceTemplatesResult(resource_templates=templates, cache_scope="private")

    async def call_tool(self, _: Context, params: CallToolRequestParams) -> CallToolResult:
        """Run a tool; wrong arguments are an answer of the tool, not an error of the protocol."""
        entry = self._access.granted(current_caller(), self._catalogue.tools, params.name)
        try:
            answer: dict[str, Any] = await entry.perform(self._service, params.arguments or {})
        except CannotAnswerError as reason:
            return CallToolResult(content=[TextContent(type="text", text=str(reason))], is_error=True)
        if params.name == "refresh_cache":
            await self.bus.publish(ResourceUpdated("rates://cache/state"))
        return CallToolResult(
            content=[TextContent(type="text", text=json.dumps(answer))], structured_content=answer, is_error=False
        )

    async def get_prompt(self, _: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """Render a prompt."""
        entry = self._access.granted(current_caller(), self._catalogue.prompts, params.name)
        result: GetPromptResult = await entry.perform(self._service, params.arguments or {})
        return result

    async def read_resource(self, _: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Read a resource, or the instance of a template."""
        caller, uri = current_caller(), params.uri
        perform, arguments = self._readable(uri)
        try:
            answer: dict[str, Any] = await perform(self._service, arguments)
        except CannotAnswerError:
            self._access.deny(caller, uri, "there is no answer")
        contents = TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(answer))
        return ReadResourceResult(contents=[contents], cache_scope="private")

    async def complete(self, _: Context, params: CompleteRequestParams) -> CompleteResult:
        """Complete the argument `currency`, the only one that has a list of values."""
        caller = current_caller()
        if isinstance(params.ref, PromptReference):
            self._access.granted(caller, self._catalogue.prompts, params.ref.name)
        elif params.ref.uri in self._catalogue.templates:
            self._access.granted(caller, self._catalogue.templates, params.ref.uri)
        else:
            self._readable(params.ref.uri)
        known = self._service.currencies() if params.argument.name == "currency" else ()
        values = [currency for currency in known if currency.startswith(params.argument.value)]
        return CompleteResult(completion=Completion(values=values[:100], total=len(values), has_more=len(values) > 100))

    async def listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve a subscription stream for what the caller may read; the rest is left out of the acknowledgement."""
        wanted = params.notifications.resource_subscriptions
        if wanted:
            readable = [uri for uri in wanted if self._may_read(uri)]
            filtered = params.notifications.model_copy(update={"resource_subscriptions": readable})
            params = params.model_copy(update={"notifications": filtered})
        return await self.streams(context, params)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema for the SDK's check of mirrored headers, for this caller only."""
        return self._access.input_schema(current_caller(), self._catalogue.tools, name)

    def _readable(self, uri: str) -> tuple[Perform, dict[str, str]]:
        """How to read the resource or template instance `uri`; denied by gate 3 if the caller may not."""
        caller, catalogue = current_caller(), self._catalogue
        if uri in catalogue.resources:
            return self._access.granted(caller, catalogue.resources, uri).perform, {}
        template, arguments = catalogue.template_of(uri)
        return self._access.granted(caller, catalogue.templates, template).perform, arguments

    def _may_read(self, uri: str) -> bool:
        try:
            self._readable(uri)
        except MCPError:
            return False
        return True


def _refuse_cursor(params: PaginatedRequestParams | None) -> None:
    # Every listing is one page, so no cursor was ever handed out.
    if params is not None and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "Unknown cursor")
