//! Runs the HTTP server: the table of routes, and the checks and bounds around each route.

pub(crate) mod assets;
pub(crate) mod guard;
pub(crate) mod listener;
pub(crate) mod once;
pub(crate) mod route;

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use crate::problem::Problem;
use crate::server::guard::Class;
use crate::server::route::Route;
use crate::state::App;

/// How long a request may take.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// The longest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The longest answer that gets an ETag, in bytes.
const TAGGED_BYTES_MAX: usize = 8 << 20;
/// The header with the id of a POST, so that a repeated one runs once.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers of every answer. Pages may load scripts, styles and data only from this server, and no
/// other page may frame them.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Serves these routes and the console's files, under the base path.
pub(crate) fn router(app: App, routes: Vec<Route>) -> Router {
    let mut router = Router::new();
    let bare = app.settings.metrics_only;
    for Route { path, class, answers } in routes {
        if bare && !matches!(class, Class::Health | Class::Metrics) {
            continue;
        }
        let guard = from_fn_with_state((app.clone(), class), guarded);
        router = router.route(path, answers.layer(guard));
    }
    let files = app.settings.base_path.clone();
    let asset =
        async move |uri: Uri, headers: HeaderMap| assets::serve(&files, uri.path(), &headers);
    let shell = if bare { any(nothing) } else { any(asset) };
    let shell = shell.layer(from_fn_with_state((app.clone(), Class::Asset), guarded));
    let router = router.fallback_service(shell.with_state(app.clone()));
    let router = match app.settings.base_path.as_str() {
        "" => router,
        base => Router::new().nest(base, router),
    };
    router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).layer(from_fn(with_headers)).with_state(app)
}

async fn nothing() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not found: this address serves /metrics, /healthz and /readyz\n")
}

async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // The console's files have cache headers of their own.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Admits a request, limits how many run and for how long, and answers a repeated POST with the
/// first answer.
async fn guarded(
    State((app, class)): State<(App, Class)>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(refusal) = app.policy.admit(class, request.method(), request.headers()) {
        let (error, help) = refusal.text();
        return Problem::new(refusal.status(), error, help).into_response();
    }
    if matches!(class, Class::Asset | Class::Health) {
        return next.run(request).await;
    }
    let Ok(_permit) = app.permits.try_acquire() else {
        let problem = Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the console is answering too many requests",
            "ask again in a second",
        );
        return ([(header::RETRY_AFTER, "1")], problem).into_response();
    };
    let answered = tokio::time::timeout(REQUEST_MAX, async {
        match class {
            Class::Write => once(&app, request, next).await,
            Class::Read => tagged(request, next).await,
            _ => next.run(request).await,
        }
    });
    answered.await.unwrap_or_else(|_| {
        Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("the database took longer than {} s to answer", REQUEST_MAX.as_secs()),
            "ask for less, or ask again when the database is less busy",
        )
        .into_response()
    })
}

/// Answers `304` to a client that has the answer already.
async fn tagged(request: Request, next: Next) -> Response {
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let (mut parts, body) = next.run(request).await.into_parts();
    if parts.status != StatusCode::OK {
        return Response::from_parts(parts, body);
    }
    let Ok(body) = to_bytes(body, TAGGED_BYTES_MAX).await else {
        return Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the answer is too long",
            "ask for fewer rows with limit=",
        )
        .into_response();
    };
    let tag = format!("\"{}\"", &blake3::hash(&body).to_hex()[..32]);
    if known.is_some_and(|known| known == tag.as_str()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        parts.headers.insert(header::ETAG, tag);
    }
    Response::from_parts(parts, Body::from(body))
}

async fn once(app: &App, request: Request, next: Next) -> Response {
    let id = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let Some(id) = id.filter(|id| (8..=once::ID_BYTES_MAX).contains(&id.len())) else {
        return Problem::bad(
            "a change needs the header X-Request-Id of 8 to 64 characters",
            "send a fresh random one with each change, and the same one when you repeat it",
        )
        .into_response();
    };
    let id = format!("{} {id}", request.uri().path());
    let work = async {
        let (parts, body) = next.run(request).await.into_parts();
        match to_bytes(body, TAGGED_BYTES_MAX).await {
            Ok(body) => (parts.status, body),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, bytes::Bytes::new()),
        }
    };
    let (status, body) = app.once.answer(&id, work).await;
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
