"""The sentences of the standards that requirements quote."""

from quenchz_spec.requirement import Norm

MCP_AUDIENCE = Norm(
    "MCP 2026-07-28, basic/authorization, Token Handling",
    "MCP servers MUST validate that access tokens were issued specifically for them as the intended audience, "
    "according to RFC 8707 Section 2.",
)
MCP_IN_AUDIENCE = Norm(
    "MCP 2026-07-28, basic/authorization/security-considerations",
    "MCP servers MUST only accept tokens specifically intended for themselves and MUST reject tokens that do not "
    "include them in the audience claim or otherwise verify that they are the intended recipient of the token.",
)
MCP_INVALID = Norm(
    "MCP 2026-07-28, basic/authorization, Token Handling; RFC 7662 §2.2",
    "Invalid or expired tokens MUST receive a HTTP 401 response. [...] active REQUIRED. Boolean indicator of whether "
    "or not the presented token is currently active.",
)
MCP_EVERY_REQUEST = Norm(
    "MCP 2026-07-28, basic/authorization, Token Requirements",
    "Note that authorization MUST be included in every HTTP request from client to server.",
)
MCP_UPPERCASE = Norm(
    "MCP 2026-07-28, basic/authorization, Canonical Server URI",
    "While the canonical form uses lowercase scheme and host components, implementations SHOULD accept uppercase "
    "scheme and host components for robustness and interoperability.",
)
MCP_INSUFFICIENT_SCOPE = Norm(
    "MCP 2026-07-28, basic/authorization, Runtime Insufficient Scope Errors",
    "When a client makes a request with an access token with insufficient scope during runtime operations, the server "
    "SHOULD respond with: HTTP 403 Forbidden status code [and] WWW-Authenticate header with [...] "
    'error="insufficient_scope"',
)
MCP_ACCESS_CONTROL = Norm(
    "MCP 2026-07-28, server/utilities/caching, Security Considerations",
    "Server implementors: MUST apply appropriate per-primitive access controls, and MUST NOT rely on cacheScope alone "
    "to prevent unauthorized access to primitives.",
)
MCP_PUBLIC_SHARED = Norm(
    "MCP 2026-07-28, server/utilities/caching, Security Considerations",
    'Servers MUST be aware that responses with a "public" cacheScope may be shared between callers even if the Result '
    "is coming from an authenticated endpoint.",
)
MCP_NO_DATA = Norm(
    "MCP 2026-07-28, basic/authorization/security-considerations",
    "MCP servers MUST validate access tokens before processing the request, ensuring the access token is issued "
    "specifically for the MCP server, and take all necessary steps to ensure no data is returned to unauthorized "
    "parties.",
)
MCP_SESSIONS = Norm(
    "MCP 2025-11-25, tutorials/security/security_best_practices, Session Hijacking",
    "MCP servers that implement authorization MUST verify all inbound requests. MCP Servers MUST NOT use sessions for "
    "authentication.",
)
MCP_UNKNOWN_RESOURCE = Norm(
    "MCP 2026-07-28, server/resources, Error Handling",
    "If the requested resource does not exist, servers MUST return a JSON-RPC error with code -32602 (Invalid Params).",
)
MCP_OUTPUT_SCHEMA = Norm(
    "MCP 2026-07-28, server/tools, Output Schema",
    "Servers MUST provide structured results that conform to this schema.",
)
MCP_EXECUTION_ERRORS = Norm(
    "MCP 2026-07-28, server/tools, Error Handling",
    "Input validation errors (e.g., date in wrong format, value out of range) [...] are reported in tool results with "
    "isError: true",
)
RFC7519_AUDIENCE = Norm(
    "RFC 7519 §4.1.3",
    "Each principal intended to process the JWT MUST identify itself with a value in the audience claim. If the "
    'principal processing the claim does not identify itself with a value in the "aud" claim when this claim is '
    "present, then the JWT MUST be rejected.",
)
RFC9068_SIGNATURE = Norm(
    "RFC 9068 §4",
    "The resource server MUST validate the signature of all incoming JWT access tokens according to [RFC7515] using "
    'the algorithm specified in the JWT "alg" Header Parameter. The resource server MUST reject any JWT in which the '
    'value of "alg" is "none".',
)
RFC9068_KEYS = Norm(
    "RFC 9068 §4",
    "The resource server MUST use the keys provided by the authorization server.",
)
RFC7519_VALIDATION = Norm(
    "RFC 7519 §7.2",
    "If any of the listed steps fail, then the JWT MUST be rejected [...] Base64url decode the Encoded JOSE Header "
    "following the restriction that no line breaks, whitespace, or other additional characters have been used. [...] "
    "Verify that the resulting JOSE Header includes only parameters and values whose syntax and semantics are both "
    "understood and supported or that are specified as being ignored when not understood.",
)
RFC9068_TYPE = Norm(
    "RFC 9068 §4, RFC 7515 §4.1.9",
    'The resource server MUST verify that the "typ" header value is "at+jwt" or "application/at+jwt" and reject tokens '
    "carrying any other value. [...] Per RFC 2045 [RFC2045], all media type values, subtype values, and parameter "
    'names are case insensitive. [...] A recipient using the media type value MUST treat it as if "application/" were '
    "prepended to any \"typ\" value not containing a '/'.",
)
RFC9068_ISSUER = Norm(
    "RFC 9068 §4",
    "The issuer identifier for the authorization server (which is typically obtained during discovery) MUST exactly "
    'match the value of the "iss" claim.',
)
RFC7519_LIFETIME = Norm(
    "RFC 7519 §4.1.4, §4.1.5",
    'The "exp" (expiration time) claim identifies the expiration time on or after which the JWT MUST NOT be accepted '
    'for processing. [...] The "nbf" (not before) claim identifies the time before which the JWT MUST NOT be accepted '
    "for processing.",
)
RFC7519_EXPIRY_OPTIONAL = Norm(
    "RFC 7519 §4.1.4",
    "Use of this claim is OPTIONAL.",
)
RFC7519_LEEWAY = Norm(
    "RFC 7519 §4.1.4, §4.1.5",
    "Implementers MAY provide for some small leeway, usually no more than a few minutes, to account for clock skew.",
)
RFC6750_CHALLENGE = Norm(
    "RFC 6750 §3, RFC 9110 §2.2",
    "If the protected resource request does not include authentication credentials or does not contain an access "
    "token that enables access to the protected resource, the resource server MUST include the HTTP "
    '"WWW-Authenticate" response header field [...] A sender MUST NOT generate protocol elements that do not match the '
    "grammar defined by the corresponding ABNF rules.",
)
RFC6750_NO_CODE = Norm(
    "RFC 6750 §3.1",
    "If the request lacks any authentication information [...], the resource server SHOULD NOT include an error code "
    "or other error information.",
)
RFC6750_DESCRIPTION = Norm(
    "RFC 6750 §3",
    'In addition, the resource server MAY include the "error_description" attribute to provide developers a '
    "human-readable explanation that is not meant to be displayed to end-users.",
)
RFC6750_QUERY = Norm(
    "RFC 6750 §2.3",
    "Because of the security weaknesses associated with the URI method (see Section 5), including the high likelihood "
    "that the URL containing the access token will be logged, it SHOULD NOT be used unless it is impossible to "
    'transport the access token in the "Authorization" request header field or the HTTP request entity-body. Resource '
    "servers MAY support this method.",
)
RFC6750_FIELD = Norm(
    "RFC 6750 §2.1, RFC 9110 §11.1",
    'Clients SHOULD make authenticated requests with a bearer token using the "Authorization" request header field '
    'with the "Bearer" HTTP authorization scheme. Resource servers MUST support this method. [...] It uses a '
    "case-insensitive token to identify the authentication scheme",
)
RFC9728_RESOURCE = Norm(
    "RFC 9728 §3.3",
    'The "resource" value returned MUST be identical to the protected resource\'s resource identifier value into which '
    "the well-known URI path suffix was inserted to create the URL used to retrieve the metadata.",
)
RFC6585_429 = Norm(
    "RFC 6585 §4",
    "The 429 status code indicates that the user has sent too many requests in a given amount of time [...] and MAY "
    "include a Retry-After header indicating how long to wait before making a new request.",
)
RFC9110_RETRY_AFTER = Norm(
    "RFC 9110 §10.2.3",
    'Servers send the "Retry-After" header field to indicate how long the user agent ought to wait before making a '
    "follow-up request.",
)


def ours(sentence: str) -> Norm:
    """Return the norm of a requirement that only this law makes."""
    return Norm("the law of QUENCHZ", sentence)
