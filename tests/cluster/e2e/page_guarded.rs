//! Requests that the page refuses, without a browser and from another page in one; and the read-only page.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use windlass_harness::kit::{World, fleet};
use windlass_harness::page::browser::Browser;
use windlass_harness::page::dashboard::Dashboard;

/// A response: its status, its headers and its body.
struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: String,
}

fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

async fn asked(request: reqwest::RequestBuilder) -> Answer {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Answer { status, headers, body: answer.text().await.unwrap() }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_origins_and_forged_forms_are_denied() {
    let world = World::new("page-guarded").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let page = Dashboard::start(world.cp.kubeconfig(), &["-n", &world.ns]).await;
    let fleet = page.at(&format!("/fleets/{}/db", &*world.ns));
    let pause = format!("{fleet}/pause");
    let http = http();

    for path in [page.at("/"), fleet.clone(), pause.clone(), page.at("/live"), page.at("/?token=guessed")] {
        assert_eq!(asked(http.get(path)).await.status, 401, "without the secret");
    }
    let opened = asked(http.get(&page.url)).await;
    assert_eq!((opened.status, opened.headers["location"].to_str().unwrap()), (303, "/"));
    let cookie = opened.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let get = |url: &str| http.get(url).header("cookie", &cookie);
    let seen = asked(get(&fleet)).await;
    assert_eq!(seen.status, 200);
    let policy = seen.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    let elsewhere =
        ["http://", "https://", "//cdn"].iter().filter(|address| seen.body.contains(**address)).count();
    assert_eq!(elsewhere, 0, "nothing is loaded from elsewhere: {}", seen.body);

    let other = asked(get(&fleet).header("host", "evil.example")).await;
    assert_eq!(other.status, 421, "{}", other.body);
    assert_eq!(asked(get(&fleet).header("origin", "https://evil.example")).await.status, 403);

    let form = asked(get(&pause)).await.body;
    let (secret, seal) = (hidden(&form, "form"), hidden(&form, "seal"));
    let own = page.at("");
    let post = |origin: &str, form: &str| {
        let body = [("form", form), ("seal", seal.as_str()), ("reason", "forged")];
        let body = reqwest::Url::parse_with_params("http://x/", body).unwrap().query().unwrap().to_owned();
        let request = http.post(&pause).header("cookie", &cookie).body(body);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        if origin.is_empty() { request } else { request.header("origin", origin) }
    };
    for (origin, form, status) in [
        ("https://evil.example", secret.as_str(), 403),
        ("null", &secret, 403),
        ("", &secret, 403),
        (&own, "", 403),
        (&own, "guessed", 403),
    ] {
        assert_eq!(asked(post(origin, form)).await.status, status, "from {origin:?} with {form:?}");
    }
    assert_eq!(world.db().await["spec"]["paused"], false, "none of these did anything");
    let done = asked(post(&own, &secret)).await;
    assert_eq!(done.status, 200, "{}", done.body);
    assert_eq!(world.db().await["spec"]["paused"], true);

    // A form that was opened before the fleet changed does nothing, and shows the current effect.
    let resume = format!("{fleet}/resume");
    let stale = hidden(&asked(get(&resume)).await.body, "seal");
    world.set_image("db:2").await;
    world.until_db("the other image is wanted", |db| db["status"]["rollout"].is_object()).await;
    let body = reqwest::Url::parse_with_params("http://x/", [("form", &secret), ("seal", &stale)]).unwrap();
    let late = http.post(&resume).header("cookie", &cookie).header("origin", &own);
    let late = late.header("content-type", "application/x-www-form-urlencoded");
    let late = asked(late.body(body.query().unwrap().to_owned())).await;
    assert_eq!(late.status, 409, "{}", late.body);
    assert!(late.body.contains("the object changed since you opened this page"), "{}", late.body);
    assert_ne!(hidden(&late.body, "seal"), stale, "the new meaning has a form of its own");
    assert_eq!(world.db().await["spec"]["paused"], true);

    // A page of this machine, in the browser that has the cookie.
    let Some(mut browser) = Browser::start().await else { return };
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    let evil = evil(&pause, &secret, &seal).await;
    browser.go(&page.url).await;
    browser.go(&evil).await;
    browser.wait("body", "comes from another page").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_ne!(world.db().await["spec"]["paused"], true);
    browser.close().await;
}

/// A hidden field of a form.
fn hidden(form: &str, name: &str) -> String {
    let (_, rest) =
        form.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("{name}: {form}"));
    rest.split('"').next().unwrap().to_owned()
}

/// Other machines cannot reach it: it is served on one loopback address only.
#[tokio::test(flavor = "multi_thread")]
async fn dashboard_is_served_only_on_one_loopback_address() {
    let world = World::without_operator("page-alone").await;
    let page = Dashboard::start(world.cp.kubeconfig(), &["-n", &world.ns]).await;
    let (base, _) = page.url.split_once("/?").unwrap();
    let port: u16 = base.strip_prefix("http://127.0.0.1:").expect(&page.url).parse().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_ok());
    // A listener on all addresses would answer here, too.
    let other = TcpStream::connect(("127.0.0.2", port)).await;
    assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

/// A page that submits a form to another site as soon as it is opened, with all secrets known.
async fn evil(action: &str, secret: &str, seal: &str) -> String {
    let html = format!(
        "<form method=post action='{action}'><input name=form value='{secret}'><input name=seal value='{seal}'></form>\
         <script>document.forms[0].submit()</script>"
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{html}",
                html.len()
            );
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}/")
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_dashboard_is_read_only() {
    let mut world = World::without_operator("page-operator").await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bind = free.to_string();
    world
        .start_operator(&["--dashboard", "--dashboard-bind", &bind, "--dashboard-host", "windlass.test"])
        .await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.patch_fleet(json!({"spec": {"paused": true}})).await;
    world.set_image("db:2").await;
    world.until_db("it waits", |db| db["status"]["rollout"].is_object()).await;
    // By then the operator's own writes and updates are over.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let http = http();
    let url = format!("http://{bind}/fleets/{}/db", &*world.ns);
    let mark = world.cp.audit_mark().await;
    let mut seen = asked(http.get(&url)).await;
    for _ in 0..50 {
        if seen.body.contains("wave 1") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        seen = asked(http.get(&url)).await;
    }
    assert_eq!(seen.status, 200, "{}", seen.body);
    for words in ["2 nodes available at 1", "wave 1", "This page is read-only", "windlass resume nd/db"] {
        assert!(seen.body.contains(words), "{words}: {}", seen.body);
    }
    assert!(
        !seen.body.contains("<form") && !seen.body.contains("The effect could not be computed"),
        "{}",
        seen.body
    );
    let list = asked(http.get(format!("http://{bind}/")).header("host", "windlass.test")).await;
    assert!(list.status == 200 && list.body.contains("/db\""), "{}", list.body);
    assert_eq!(asked(http.get(&url).header("host", "evil.example")).await.status, 421);
    assert_eq!(asked(http.get(format!("{url}/resume"))).await.status, 403);
    let post = http.post(format!("{url}/resume")).header("origin", format!("http://{bind}")).body("");
    let post = post.header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(asked(post).await.status, 403);
    assert_eq!(world.db().await["spec"]["paused"], true);
    let wrote = world.cp.audit_since(mark).await.namespace(&world.ns).write_attempts();
    assert!(wrote.entries().is_empty(), "looking writes nothing: {:?}", wrote.entries());
}
