//! t
mod controlplane;
#[tokio::test]
async fn it() {
    let cp = controlplane::ControlPlane::shared().await;
    let _ns = cp.namespace("x").await;
    println!("{}", cp.kubectl(&["get", "nodes,sc,crd"]).await.ok());
}
