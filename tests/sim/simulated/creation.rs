//! How many nodes start at the same time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::sets::world::{NODE, blue_green, condition, fleet, is_up_to_date, message, play, text};
use super::zones::is_ready;
use windlass_sim::Cluster;

/// The fleet whose pods are Ready 5 s after their start.
fn slow(mut fleet: Value, most: i32) -> Value {
    fleet["spec"]["creation"] = json!({"maxInitializing": most});
    fleet["spec"]["template"]["spec"]["image"] = json!("db:1-slow");
    fleet
}

/// Watches how many pods exist that are not Ready.
fn watch(cluster: &Arc<Cluster>) -> Arc<Mutex<usize>> {
    let worst = Arc::<Mutex<usize>>::default();
    let (seen, cluster) = (worst.clone(), cluster.clone());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let all = cluster.snapshot();
            let pods = all.iter().filter(|object| object["kind"] == "Pod");
            let starting = pods.filter(|pod| !is_ready(&cluster, text(&pod["metadata"], "name"))).count();
            let mut worst = seen.lock().unwrap();
            *worst = (*worst).max(starting);
        }
    });
    worst
}

fn at_most(worst: &Mutex<usize>) -> usize {
    std::mem::take(&mut *worst.lock().unwrap())
}

#[test]
fn nodes_start_so_many_at_a_time() {
    for most in [1, 2] {
        play(|w| async move {
            let worst = watch(&w.cluster);
            w.serve(slow(fleet(5, json!({"type": "InPlace"})), most)).await;
            assert_eq!(at_most(&worst), most as usize);
            w.change(json!({"replicas": 9})).await;
            w.until("it is scaled", |status| status["readyReplicas"] == 9).await;
            assert_eq!(at_most(&worst), most as usize);
        });
    }
}

#[test]
fn missing_nodes_say_what_they_wait_for() {
    play(|w| async move {
        w.create(slow(fleet(3, json!({"type": "InPlace"})), 1)).await;
        w.steer("db-0-0", "crash-loop").await;
        let status =
            w.until("it is stalled", |status| condition(status, "Stalled").starts_with("True")).await;
        assert_eq!(w.names(NODE), ["db-0"], "no node starts on top of a broken one");
        let told = message(&status, "UpToDate");
        assert!(told.contains("db-0: CrashLoopBackOff"), "{told}");
    });
}

#[test]
fn lost_nodes_come_back_together() {
    play(|w| async move {
        w.serve(slow(fleet(4, json!({"type": "InPlace"})), 1)).await;
        let worst = watch(&w.cluster);
        for node in ["db-0", "db-1", "db-2", "db-3"] {
            w.delete(NODE, node).await;
        }
        w.rest(3).await;
        assert_eq!(w.names(NODE).len(), 4, "they may need each other");
        w.until("they are back", is_up_to_date).await;
        assert!(at_most(&worst) > 1);
    });
}

#[test]
fn new_set_starts_so_many_at_a_time() {
    play(|w| async move {
        w.serve(slow(blue_green(3, json!({"retireDelaySeconds": 1})), 1)).await;
        let worst = watch(&w.cluster);
        w.image("db:2-slow").await;
        w.until("the new set serves", |status| {
            is_up_to_date(status)
                && w.images().len() == 3
                && w.images().iter().all(|pod| pod.ends_with("db:2-slow"))
        })
        .await;
        assert_eq!(at_most(&worst), 1);
    });
}
