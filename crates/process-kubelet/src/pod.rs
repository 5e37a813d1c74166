//! The life of one pod: volumes, init containers in order, containers, termination, and deletion.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    clock::{self, monotonic},
    context::{Context, Shared, View},
    runner::{Runner, Stop},
    status::starts_again,
    table::{Record, Role, State, Table, with_past},
    volumes::Volumes,
    writer,
};

/// The retry interval of failed mounts.
const MOUNT_AGAIN: Duration = Duration::from_secs(1);
/// The retry interval of a failed delete.
const DELETE_AGAIN: Duration = Duration::from_secs(1);
/// The least time for a sidecar to terminate, however long the others took.
const LEAST_FOR_SIDECARS: Duration = Duration::from_secs(2);

/// A started container.
struct Begun {
    index: usize,
    role: Role,
    stop: watch::Sender<Option<Stop>>,
    task: Option<Task>,
}

/// A task that is aborted on drop.
struct Task(JoinHandle<()>);

impl Task {
    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    async fn done(mut self) {
        let _ = (&mut self.0).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Life {
    context: Arc<Context>,
    containers: Vec<(Role, Container)>,
    begun: Mutex<Vec<Begun>>,
}

/// Runs a pod from its binding to its deletion. `before` resolves when the processes of an earlier pod with the same
/// name have ended: the two share an address, and often a volume.
pub(crate) async fn live(
    shared: Arc<Shared>,
    view: watch::Receiver<View>,
    before: Option<oneshot::Receiver<()>>,
    ended: oneshot::Sender<()>,
) {
    if let Some(before) = before {
        // A dropped sender means the same.
        let _ = before.await;
    }
    let life = Life::new(shared, view);
    let context = &life.context;
    let mut view = context.view.clone();
    let writer = Task::spawn(writer::write(Arc::clone(context)));
    let leaves = {
        let mut view = view.clone();
        async move { drop(view.wait_for(View::leaves).await) }
    };
    tokio::select! {
        biased;
        () = leaves => {}
        () = life.run() => {}
    }
    life.stop().await;
    context.table.set_pod(|pod| pod.over = true);
    // The last status is written, or cannot be.
    writer.done().await;
    let _ = ended.send(());
    let _ = view.wait_for(View::leaves).await;
    delete(context).await;
    let _ = view.wait_for(|view| view.gone).await;
    let _ = std::fs::remove_dir_all(&context.folder);
}

impl Life {
    fn new(shared: Arc<Shared>, view: watch::Receiver<View>) -> Self {
        let pod = Arc::clone(&view.borrow().pod);
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let uid = pod.uid().unwrap_or_default();
        let containers = containers(&pod);
        let records = containers.iter().map(|(role, container)| record(&pod, *role, container)).collect();
        let context = Context {
            ip: shared.addresses.of(&namespace, &name),
            folder: shared.folder_of(&namespace, &name, &uid),
            events: shared.events.about(&pod),
            table: Table::new(records),
            volumes: OnceLock::new(),
            shared,
            view,
            namespace,
            name,
            uid,
        };
        Self { context: Arc::new(context), containers, begun: Mutex::default() }
    }

    /// Runs the pod to its own end; cancelled when it is deleted.
    async fn run(&self) {
        let context = &self.context;
        let before = context.pod().status.as_ref().and_then(|status| status.start_time.clone());
        let since = before.map_or_else(clock::now, |time| time.0);
        context.table.set_pod(|pod| pod.started = Some(since));
        self.mount().await;
        context.table.set_pod(|pod| pod.ready = true);
        for (index, (role, _)) in self.containers.iter().enumerate() {
            match role {
                Role::Init => {
                    self.begin(index);
                    context.table.until(index, |record| self.is_over(record)).await;
                    if !matches!(&context.table.record(index).state, State::Ended(end) if end.code == 0) {
                        return;
                    }
                }
                Role::Sidecar => {
                    self.begin(index);
                    context.table.until(index, |record| record.started).await;
                }
                Role::Main => {}
            }
        }
        let mains = || self.containers.iter().enumerate().filter(|(_, (role, _))| *role == Role::Main);
        mains().for_each(|(index, _)| self.begin(index));
        for (index, _) in mains() {
            context.table.until(index, |record| self.is_over(record)).await;
        }
    }

    async fn mount(&self) {
        let context = &self.context;
        loop {
            let pod = context.pod();
            let volumes = Volumes {
                client: &context.shared.client,
                pod: &pod,
                ip: context.ip,
                folder: &context.folder,
            };
            match volumes.make().await {
                Ok(made) => {
                    let _ = context.volumes.set(made);
                    return;
                }
                Err(why) => {
                    context.events.warning("FailedMount", why);
                    sleep(MOUNT_AGAIN).await;
                }
            }
        }
    }

    /// True if a container has terminated and will not restart.
    fn is_over(&self, record: &Record) -> bool {
        let State::Ended(end) = &record.state else { return false };
        !starts_again(&self.context.pod(), record.role, end.code)
    }

    fn begin(&self, index: usize) {
        let (role, container) = &self.containers[index];
        let (stop, deadline) = watch::channel(None);
        let runner = Runner {
            context: Arc::clone(&self.context),
            index,
            container: container.clone(),
            role: *role,
            stop: deadline,
        };
        let task = Some(Task::spawn(runner.live()));
        self.begun().push(Begun { index, role: *role, stop, task });
    }

    /// Terminates the containers together, then the sidecars in reverse order.
    async fn stop(&self) {
        let mut view = self.context.view.clone();
        let grace = view.borrow_and_update().grace();
        let by = Mutex::new(monotonic() + grace);
        let read = || *by.lock().unwrap_or_else(PoisonError::into_inner);
        let in_order = async {
            let (mut mains, mut sidecars) = (Vec::new(), Vec::new());
            for (at, begun) in self.begun().iter_mut().enumerate() {
                let task = begun.task.take();
                let list = if begun.role == Role::Sidecar { &mut sidecars } else { &mut mains };
                list.push((at, begun.index, task));
            }
            for (at, _, _) in &mains {
                self.stop_at(*at, read());
            }
            for (_, _, task) in mains {
                joined(task).await;
            }
            for (at, _, task) in sidecars.into_iter().rev() {
                self.stop_at(at, read().max(monotonic() + LEAST_FOR_SIDECARS));
                joined(task).await;
            }
        };
        let shortened = async {
            // A second delete may shorten the grace period, down to zero.
            while view.changed().await.is_ok() {
                let now = view.borrow_and_update().clone();
                let earlier = monotonic() + now.grace();
                if now.leaves() && earlier < read() {
                    *by.lock().unwrap_or_else(PoisonError::into_inner) = earlier;
                    for begun in self.begun().iter() {
                        begun.stop.send_if_modified(|stop| match stop {
                            Some(stop) if stop.by > earlier => {
                                stop.by = earlier;
                                true
                            }
                            _ => false,
                        });
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = in_order => {}
            () = shortened => {}
        }
    }

    fn stop_at(&self, at: usize, by: Instant) {
        if let Some(begun) = self.begun().get(at) {
            begun.stop.send_replace(Some(Stop { by }));
        }
    }

    fn begun(&self) -> MutexGuard<'_, Vec<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn joined(task: Option<Task>) {
    if let Some(task) = task {
        task.done().await;
    }
}

/// All containers in the order of the table: init containers first.
fn containers(pod: &Pod) -> Vec<(Role, Container)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let inits = spec.init_containers.iter().flatten().map(|container| {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        (if sidecar { Role::Sidecar } else { Role::Init }, container.clone())
    });
    inits.chain(spec.containers.iter().map(|container| (Role::Main, container.clone()))).collect()
}

fn record(pod: &Pod, role: Role, container: &Container) -> Record {
    let has_inits =
        pod.spec.as_ref().is_some_and(|spec| spec.init_containers.iter().flatten().next().is_some());
    let reason = if has_inits { "PodInitializing" } else { "ContainerCreating" };
    let mut record = Record {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        role,
        state: State::waiting(reason, ""),
        last: None,
        restarts: 0,
        started: false,
        ready: false,
        id: String::new(),
        image_id: String::new(),
    };
    let status = pod.status.as_ref();
    let past = |list: Option<&Vec<ContainerStatus>>| {
        list.into_iter().flatten().find(|past| past.name == container.name).cloned()
    };
    let past = match role {
        Role::Main => past(status.and_then(|status| status.container_statuses.as_ref())),
        _ => past(status.and_then(|status| status.init_container_statuses.as_ref())),
    };
    if let Some(past) = past {
        // The folders are new, so that completed init containers run again.
        with_past(&mut record, &past, |code| role == Role::Init || starts_again(pod, role, code));
    }
    record
}

/// Deletes the pod object, by UID, once its processes have ended.
async fn delete(context: &Context) {
    let pods: Api<Pod> = Api::namespaced(context.shared.client.clone(), &context.namespace);
    let only = Preconditions { uid: Some(context.uid.clone()), ..Preconditions::default() };
    let now = DeleteParams { preconditions: Some(only), ..DeleteParams::default().grace_period(0) };
    while !context.view.borrow().gone {
        match pods.delete(&context.name, &now).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return,
            Err(error) => {
                tracing::warn!(%error, pod = context.name, "a pod cannot be deleted");
                sleep(DELETE_AGAIN).await;
            }
        }
    }
}
