//! The page over HTTP: routes and response headers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::FormRejection;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, serve::ListenerExt};
use serde::Deserialize;
use tokio::net::TcpListener;

use super::actions::{Action, Actions, Button, MAX_REASON_CHARS, Refused};
use super::guard::{Denial, Guard};
use super::html;
use super::live;
use super::source::Source;
use super::state::{Loaded, Page, list_view, message, object_view, page};
use super::subject::{PageKind, PageOf};
use windlass_kube_port::Key;

/// The content security policy: everything comes from the page itself, without inline scripts or styles.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The largest form, in bytes.
const MAX_FORM_BYTES: usize = 16 * 1024;
/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 4 * 1024;
/// How long a page waits for data that is still being read; then it is rendered without them.
const PATIENCE: Duration = Duration::from_secs(1);

/// Serves the page until the listener ends.
pub async fn serve(
    listener: TcpListener,
    source: Arc<Source>,
    actions: Option<Arc<dyn Actions>>,
    guard: Guard,
) -> std::io::Result<()> {
    let page = Page::new(source, actions, guard);
    // Live updates are small and should not be delayed by Nagle's algorithm.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router(page)).await
}

pub(super) fn router(page: Page) -> Router {
    let all = Router::new();
    let all = PageKind::all().fold(all, |all, kind| all.merge(routes(kind)));
    all.route("/", get(list))
        .route("/healthz", get(healthz))
        .route("/live", get(live::list))
        .route("/style.css", get(|| async { ([(CONTENT_TYPE, "text/css; charset=utf-8")], html::STYLE) }))
        .route(
            "/page.js",
            get(|| async { ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], html::SCRIPT) }),
        )
        .fallback(|| async { message(StatusCode::NOT_FOUND, "Not found", "There is no such page.") })
        .method_not_allowed_fallback(|| async { no_such_method("GET, HEAD") })
        .layer(DefaultBodyLimit::max(MAX_FORM_BYTES))
        .layer(from_fn_with_state(page.clone(), gate))
        .with_state(page)
}

type OfPage = State<Page>;
type Named = Path<(String, String)>;

/// The pages of the objects of a kind.
fn routes(kind: PageKind) -> Router<Page> {
    let of = move |Path((namespace, name)): Named| PageOf { kind, key: Key::new(namespace, name) };
    let path = format!("/{}/{{namespace}}/{{name}}", kind.folder());
    Router::new()
        .route(&path, get(async move |State(page): OfPage, named: Named| object(page, of(named)).await))
        .route(
            &format!("{path}/nodes"),
            get(async move |State(page): OfPage, named: Named, Query(paged): Query<Paged>| {
                nodes(page, of(named), paged).await
            }),
        )
        .route(
            &format!("{path}/{{verb}}"),
            get(async move |State(page): OfPage, Path(place): Path<Place>| ask(page, kind, place).await)
                .post(
                    async move |State(page): OfPage,
                                Path(place): Path<Place>,
                                filled: Result<Form<Filled>, FormRejection>| {
                        act(page, kind, place, filled).await
                    },
                ),
        )
        .route(
            &format!("/live{path}"),
            get(async move |State(page): OfPage, named: Named| live::object(page, of(named)).await),
        )
}

/// Refuses unauthorized requests, and sets the security headers of every response.
async fn gate(State(page): State<Page>, request: Request, next: Next) -> Response {
    let (path, query) =
        (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let is_public = matches!(path.as_str(), "/style.css" | "/page.js" | "/healthz");
    let token = query.split('&').find_map(|pair| pair.strip_prefix("token="));
    let is_known = matches!(*request.method(), Method::GET | Method::HEAD | Method::POST);
    let mut response = match page.guard.check(request.method(), request.headers()) {
        _ if path.len() + query.len() > MAX_PATH_BYTES => {
            let message = message(StatusCode::URI_TOO_LONG, "URI too long", "The address is too long.");
            ([(CONNECTION, "close")], message).into_response()
        }
        Err(Denial::Origin | Denial::Secret) | Ok(()) if !is_known => no_such_method("GET, HEAD, POST"),
        Err(Denial::Name) => message(
            StatusCode::MISDIRECTED_REQUEST,
            "Unknown host name",
            "This page does not have the host name of the request. Open the address that windlass printed.",
        ),
        Err(Denial::Origin) => message(
            StatusCode::FORBIDDEN,
            "Refused",
            "The request comes from another page. Nothing was changed.",
        ),
        Err(Denial::Secret) if !is_public => match token.and_then(|token| page.guard.opened(token)) {
            Some(cookie) => ([(SET_COOKIE, cookie)], to(&path)).into_response(),
            None => message(
                StatusCode::UNAUTHORIZED,
                "Sign-in required",
                "Open the complete address that windlass dashboard printed, including the token.",
            ),
        },
        // The token is in the cookie now; redirect, so that a copied address does not contain it.
        Ok(()) if token.is_some() => to(&path),
        Ok(()) | Err(Denial::Secret) => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Without a referrer the page's own forms would lack their origin, too.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The response to a wrong method.
fn no_such_method(allowed: &'static str) -> Response {
    let sentence = "This page does not support this method.";
    ([(ALLOW, allowed)], message(StatusCode::METHOD_NOT_ALLOWED, "Not changed", sentence)).into_response()
}

/// Redirects to a path of this page. A path with two leading slashes would be another host to a browser.
fn to(path: &str) -> Response {
    let path = format!("/{}", path.trim_start_matches(['/', '\\']));
    (StatusCode::SEE_OTHER, [(LOCATION, path)]).into_response()
}

fn unread(sentence: &str) -> Response {
    message(StatusCode::BAD_GATEWAY, "Cannot read", sentence)
}

fn gone(PageOf { kind, key }: &PageOf) -> Response {
    let (word, Key { namespace, name, .. }) = (kind.word(), key);
    let sentence = format!("There is no {word} {name} in namespace {namespace}. It may have been deleted.");
    message(StatusCode::NOT_FOUND, "Not found", &sentence)
}

async fn list(State(state): State<Page>) -> Response {
    match state.source.watched().await {
        Ok(watched) => page(StatusCode::OK, html::list(&list_view(&state, &watched))),
        Err(sentence) => unread(&sentence),
    }
}

/// Reports whether the page is up to date; needs no secret, and shows no fleet.
async fn healthz(State(state): State<Page>) -> Response {
    match state.source.check_health().await {
        Ok(()) => "ok\n".into_response(),
        Err(sentence) => (StatusCode::SERVICE_UNAVAILABLE, format!("{sentence}\n")).into_response(),
    }
}

async fn object(state: Page, of: PageOf) -> Response {
    let watched = match state.source.watched().await {
        Ok(watched) => watched,
        Err(sentence) => return unread(&sentence),
    };
    let mut changes = watched.changes();
    let details = async {
        while object_view(&state, &watched, &of).is_some_and(|view| view.is_asking) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    // Later results arrive as live updates.
    let _ = tokio::time::timeout(PATIENCE, details).await;
    match object_view(&state, &watched, &of) {
        Some(Loaded { view, .. }) => page(StatusCode::OK, html::object(&view, state.actions.is_some())),
        None => gone(&of),
    }
}

#[derive(Deserialize)]
struct Paged {
    page: Option<usize>,
}

async fn nodes(state: Page, of: PageOf, paged: Paged) -> Response {
    match state.source.watched().await {
        Ok(watched) => match watched.one(&of) {
            Some(seen) => {
                let now = state.source.now();
                let report = seen.report(now);
                let silent_since = watched.silent_since(now);
                let number = paged.page.unwrap_or(1);
                page(StatusCode::OK, html::nodes(of.kind, &report, number, silent_since, now))
            }
            None => gone(&of),
        },
        Err(sentence) => unread(&sentence),
    }
}

/// The fields of a form.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Filled {
    form: String,
    seal: String,
    reason: String,
    force: String,
}

type Place = (String, String, String);

/// An action, and its implementation.
type RequestedAction = (Action, Arc<dyn Actions>);
/// Why there is none.
type NoAction = (StatusCode, &'static str);

/// The action of a form, and its implementation.
fn requested_action(
    state: &Page,
    kind: PageKind,
    (namespace, name, verb): Place,
    filled: &Filled,
) -> Result<RequestedAction, NoAction> {
    let button = Button::called(&verb).filter(|button| button.is_for(kind));
    let button = button.ok_or((StatusCode::NOT_FOUND, "There is no such page."))?;
    let only_shows =
        "This page is read-only. To change something, use windlass or kubectl with your own rights.";
    let actions = state.actions.as_ref().ok_or((StatusCode::FORBIDDEN, only_shows))?;
    let force = filled.force == "yes";
    Ok((Action { kind, namespace, name, button, seal: filled.seal.clone(), force }, actions.clone()))
}

/// True if no such object is visible.
async fn is_gone(state: &Page, of: &PageOf) -> bool {
    state.source.watched().await.is_ok_and(|watched| !watched.has(of))
}

async fn ask(state: Page, kind: PageKind, place: Place) -> Response {
    let of = PageOf { kind, key: Key::new(&place.0, &place.1) };
    if is_gone(&state, &of).await {
        return gone(&of);
    }
    match requested_action(&state, kind, place, &Filled::default()) {
        Ok((action, actions)) => rehearsed(&state, &action, actions.as_ref(), "", None).await,
        Err((status, sentence)) => message(status, "Not changed", sentence),
    }
}

async fn act(
    state: Page,
    kind: PageKind,
    place: Place,
    filled: Result<Form<Filled>, FormRejection>,
) -> Response {
    let filled = match filled {
        Ok(Form(filled)) => filled,
        Err(unread) => return unreadable(kind, &place, &unread),
    };
    let of = PageOf { kind, key: Key::new(&place.0, &place.1) };
    let (action, actions) = match requested_action(&state, kind, place, &filled) {
        Ok(requested) => requested,
        Err((status, sentence)) => return message(status, "Not changed", sentence),
    };
    if !state.guard.made(&filled.form) {
        let sentence = "The form is not from this page, or from before its restart. Nothing was changed.";
        return message(StatusCode::FORBIDDEN, "Refused", sentence);
    }
    if is_gone(&state, &of).await {
        return gone(&of);
    }
    let reason = filled.reason.trim();
    let length = reason.chars().count();
    if length > MAX_REASON_CHARS {
        let sentence = format!("a reason has at most {MAX_REASON_CHARS} characters, and this one {length}");
        let refused = Refused { sentence, insist: None };
        return rehearsed(&state, &action, actions.as_ref(), "", Some((StatusCode::BAD_REQUEST, &refused)))
            .await;
    }
    let why = Some(reason).filter(|reason| !reason.is_empty());
    match actions.carry_out(&action, why).await {
        Ok(done) => page(StatusCode::OK, html::done(&action, &done)),
        Err(refused) => {
            rehearsed(&state, &action, actions.as_ref(), reason, Some((StatusCode::CONFLICT, &refused))).await
        }
    }
}

/// The page for a form that is unreadable or too large, with a link back.
fn unreadable(kind: PageKind, (namespace, name, verb): &Place, unread: &FormRejection) -> Response {
    let status = unread.status();
    let sentence = if status == StatusCode::PAYLOAD_TOO_LARGE {
        format!("The form is larger than {} KiB. Nothing was changed.", MAX_FORM_BYTES / 1024)
    } else {
        format!("The form cannot be read: {}. Nothing was changed.", unread.body_text())
    };
    let back = format!("{}/{verb}", kind.path(namespace, name));
    page(status, html::message_with_way_back("Not changed", &sentence, &back))
}

/// The page of a button; after a refusal, with its reason.
async fn rehearsed(
    state: &Page,
    action: &Action,
    actions: &dyn Actions,
    reason: &str,
    tried: Option<(StatusCode, &Refused)>,
) -> Response {
    let action = Action { seal: String::new(), ..action.clone() };
    let answer = actions.rehearse(&action).await;
    let status = tried.map_or(StatusCode::OK, |(status, _)| status);
    let tried = tried.map(|(_, refused)| refused);
    let confirmation = html::Confirmation { action: &action, form: state.guard.form(), reason, tried };
    page(status, html::act(&confirmation, &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_never_leaves_the_host() {
        for (path, location) in [
            ("/", "/"),
            ("/fleets/shop/db", "/fleets/shop/db"),
            ("//evil.example/x", "/evil.example/x"),
            ("/\\evil.example", "/evil.example"),
        ] {
            assert_eq!(to(path).headers()[LOCATION], location, "{path}");
        }
    }
}
