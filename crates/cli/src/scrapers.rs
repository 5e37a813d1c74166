//! Authorizes readers of /metrics: the bearer token has to be valid (`TokenReview`) and may get the path /metrics
//! (`SubjectAccessReview`), as with Kubernetes' own components.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use windlass_clock::monotonic;

/// How long a review is cached: Prometheus scrapes every half minute or more often.
const KNOWN_FOR: Duration = Duration::from_mins(1);
/// The most cached reviews, so that invented tokens cannot fill the memory.
const MOST: usize = 256;

type Answer = Result<(), (StatusCode, &'static str)>;

/// The authorizer of /metrics.
pub struct Scrapers {
    client: Client,
    /// Cached reviews, by the token's digest.
    known: Mutex<HashMap<[u8; 32], (Instant, Answer)>>,
}

impl Scrapers {
    /// Reviews tokens with this client.
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Authorizes a request, or returns the response that refuses it.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
        let Some(token) = bearer(headers) else {
            return Err((
                StatusCode::UNAUTHORIZED,
                "this endpoint needs a bearer token of an account that may get the path /metrics\n"
                    .to_owned(),
            ));
        };
        let digest: [u8; 32] = Sha256::digest(token).into();
        let now = monotonic();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).copied();
        let answer = match known {
            Some((at, answer)) if now.duration_since(at) < KNOWN_FOR => answer,
            _ => {
                let answer = self.ask(token).await.map_err(|error| {
                    let sentence = format!("the API server could not review the token: {error}\n");
                    (StatusCode::SERVICE_UNAVAILABLE, sentence)
                })?;
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() >= MOST {
                    known.clear();
                }
                known.insert(digest, (now, answer));
                answer
            }
        };
        answer.map_err(|(code, sentence)| (code, format!("{sentence}\n")))
    }

    async fn ask(&self, token: &str) -> kube::Result<Answer> {
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user else {
            return Ok(Err((StatusCode::UNAUTHORIZED, "the API server rejects this token")));
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = SubjectAccessReview { spec: may_get_metrics(user), ..SubjectAccessReview::default() };
        let status = reviews.create(&PostParams::default(), &review).await?.status;
        let is_allowed = status.is_some_and(|status| status.allowed);
        let refused = (StatusCode::FORBIDDEN, "this account may not get the path /metrics");
        Ok(if is_allowed { Ok(()) } else { Err(refused) })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn may_get_metrics(user: UserInfo) -> SubjectAccessReviewSpec {
    let path = NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
    SubjectAccessReviewSpec {
        non_resource_attributes: Some(path),
        user: user.username,
        groups: user.groups,
        extra: user.extra,
        uid: user.uid,
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn bearer_token_is_read_from_the_header() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Bearer ", None),
            ("Basic abc", None),
            ("abc", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer(&headers), token, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
