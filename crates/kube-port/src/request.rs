//! The Kubernetes verb and resource of a request to an API server, for metrics.

use http::{Method, Request};

/// The verb of a request, as the API server determines it.
pub fn verb<B>(request: &Request<B>) -> &'static str {
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.split('&').any(|part| part == "watch=true" || part == "watch=1");
    match *request.method() {
        Method::GET if is_watch => "watch",
        Method::GET if has_name(request.uri().path()) => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if has_name(request.uri().path()) => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    }
}

/// The resource of a request, in the plural and with its subresource: `statefulnodes/status`. A path without a resource
/// gives `other`.
pub fn resource<B>(request: &Request<B>) -> String {
    match parts(request.uri().path()).as_slice() {
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => "other".to_owned(),
    }
}

fn has_name(path: &str) -> bool {
    // A path without a resource counts as one with a name: it is read with get.
    parts(path).len() != 1
}

/// The resource, the name and the subresource of a path, as far as it has them.
fn parts(path: &str) -> Vec<&str> {
    // The API server may be behind a path prefix.
    let after = |prefix: &str, skip: usize| {
        let (_, rest) = path.split_once(prefix)?;
        Some(rest.split('/').filter(|part| !part.is_empty()).skip(skip).collect::<Vec<_>>())
    };
    let parts = match path {
        _ if path.contains("/openapi/") => Vec::new(),
        _ => after("/apis/", 2).or_else(|| after("/api/", 1)).unwrap_or_default(),
    };
    match parts.as_slice() {
        ["namespaces", _, resource, rest @ ..] => [&[*resource], rest].concat(),
        _ => parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_verb_and_resource_as_in_the_api_server() {
        let ns = "/apis/windlass.dev/v1alpha1/namespaces/shop/statefulnodes";
        for (method, uri, verb_, resource_) in [
            ("GET", format!("{ns}/db-0"), "get", "statefulnodes"),
            ("PATCH", format!("{ns}/db-0/status?fieldManager=windlass"), "patch", "statefulnodes/status"),
            ("GET", format!("{ns}?limit=500"), "list", "statefulnodes"),
            ("GET", format!("{ns}?watch=true&timeoutSeconds=20"), "watch", "statefulnodes"),
            ("DELETE", "/api/v1/namespaces/shop/pods/db-0-0".to_owned(), "delete", "pods"),
            ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events".to_owned(), "create", "events"),
            ("GET", "/api/v1/pods?labelSelector=a".to_owned(), "list", "pods"),
            ("GET", "/api/v1/namespaces/shop".to_owned(), "get", "namespaces"),
            ("GET", "/k8s/clusters/c-1/api/v1/namespaces".to_owned(), "list", "namespaces"),
            ("GET", "/openapi/v3/apis/windlass.dev/v1alpha1".to_owned(), "get", "other"),
            ("GET", "/version".to_owned(), "get", "other"),
        ] {
            let request = Request::builder().method(method).uri(&uri).body(()).unwrap();
            assert_eq!((verb(&request), resource(&request).as_str()), (verb_, resource_), "{method} {uri}");
        }
    }
}
