//! The life of one container: pull, configure, run, and restart by its policy, until it is stopped.

use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use crate::{
    backoff::Turn,
    clock::monotonic,
    context::Context,
    env::{Sources, environment},
    images::{Image, id_of},
    run::Run,
    runner::Runner,
    setting::Setting,
    status::starts_again,
    table::{Role, State},
    translate::Translation,
};

/// The retry interval of a failed configuration; a real kubelet takes longer.
const CONFIGURE_AGAIN: Duration = Duration::from_secs(1);
/// How long the result of an attempt is shown before its back-off.
const SHOWN: Duration = Duration::from_secs(1);

impl Runner {
    /// Runs the container until it is terminated for good. The result is in the table.
    pub(crate) async fn live(self) {
        if matches!(self.record().state, State::Ended(_)) {
            return;
        }
        let mut crashes = Turn::of_restarts(self.context.shared.back_off);
        loop {
            let Some(image) = self.or_stopped(self.pulled()).await else { return };
            let Some(setting) = self.or_stopped(self.configured(&image)).await else { return };
            let end = Run::new(&self, &setting).to_its_end().await;
            let pod = self.context.pod();
            let again = self.stop.borrow().is_none() && starts_again(&pod, self.role, end.code);
            let done = self.role == Role::Init && end.code == 0;
            self.context.table.set(self.index, |record| {
                record.state = State::Ended(end);
                record.started = false;
                record.ready = done;
            });
            if !again {
                return;
            }
            if let Some(wait) = crashes.failed(monotonic())
                && self.or_stopped(self.back_off(wait)).await.is_none()
            {
                return;
            }
            self.begin_again();
        }
    }

    /// The result of `work`, or `None` if the container is stopped first.
    async fn or_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopped() => None,
            done = work => Some(done),
        }
    }

    fn record(&self) -> crate::table::Record {
        self.context.table.record(self.index)
    }

    fn show(&self, reason: &str, message: impl Into<String>) {
        let state = State::waiting(reason, message);
        self.context.table.set(self.index, |record| record.state = state);
    }

    /// The terminated state becomes the last state, and the restart count goes up.
    fn begin_again(&self) {
        self.context.table.set(self.index, |record| {
            if let State::Ended(end) = &record.state {
                record.last = Some(end.clone());
            }
            record.restarts += 1;
            record.state = State::waiting("ContainerCreating", "");
        });
    }

    async fn back_off(&self, wait: Duration) {
        let until = monotonic() + wait;
        sleep(SHOWN.min(wait / 2)).await;
        let Context { name, namespace, uid, .. } = &*self.context;
        let message = format!(
            "back-off {wait:?} restarting failed container={} pod={name}_{namespace}({uid})",
            self.container.name
        );
        self.context.table.set(self.index, |record| {
            if let State::Ended(end) = &record.state {
                record.last = Some(end.clone());
            }
            record.state = State::waiting("CrashLoopBackOff", message.clone());
        });
        self.events().warning(
            "BackOff",
            format!(
                "Back-off restarting failed container {} in pod {name}_{namespace}({uid})",
                self.container.name
            ),
        );
        sleep_until(until).await;
    }

    async fn pulled(&self) -> Image {
        let name = self.container.image.as_deref().unwrap_or_default();
        let events = self.events();
        let mut pulls = Turn::of_pulls(self.context.shared.back_off);
        loop {
            if let Some(image) = self.context.shared.images.get(name) {
                events.normal(
                    "Pulled",
                    format!(
                        "Container image {name:?} already present on machine and can be accessed by the pod"
                    ),
                );
                self.context.table.set(self.index, |record| record.image_id = id_of(name));
                return image;
            }
            let why = format!("failed to pull and unpack image {name:?}: no such image");
            events.warning("Failed", format!("Failed to pull image {name:?}: {why}"));
            events.warning("Failed", "Error: ErrImagePull");
            self.show("ErrImagePull", why.clone());
            let wait = pulls.failed(monotonic()).unwrap_or_default();
            let until = monotonic() + wait;
            sleep(SHOWN.min(wait / 2)).await;
            events.normal("BackOff", format!("Back-off pulling image {name:?}"));
            events.warning("Failed", "Error: ImagePullBackOff");
            self.show("ImagePullBackOff", format!("Back-off pulling image {name:?}: ErrImagePull: {why}"));
            sleep_until(until).await;
        }
    }

    async fn configured(&self, image: &Image) -> Setting {
        loop {
            match self.setting(image).await {
                Ok(setting) => return setting,
                Err(why) => {
                    self.events().warning("Failed", format!("Error: {why}"));
                    self.show("CreateContainerConfigError", why);
                    sleep(CONFIGURE_AGAIN).await;
                }
            }
        }
    }

    async fn setting(&self, image: &Image) -> Result<Setting, String> {
        let Context { shared, namespace, name, ip, .. } = &*self.context;
        let sources = Sources::of_environment(&shared.client, namespace, &self.container).await;
        let sources = sources.map_err(|error| error.to_string())?;
        let pod = self.context.pod();
        let env = environment(&pod, &self.container, image.variables(), *ip, &sources)?;
        let mounts = self.context.mounts(&self.container, &env);
        let root = self.context.container_folder(&self.container.name).join("root");
        for (at, to) in &mounts {
            // Relative paths find mounts, too.
            let link = root.join(at.trim_start_matches('/'));
            let _ = link.parent().map(std::fs::create_dir_all);
            if !link.is_symlink() {
                let _ = std::os::unix::fs::symlink(to, link);
            }
        }
        let translation = Translation::new(&shared.addresses, *ip, mounts);
        let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.as_deref()).unwrap_or(name);
        Setting::new(&self.container, image.clone(), env, translation, &root, hostname, *ip)
            .map_err(|error| error.to_string())
    }
}
