//! The behaviour of a pod: as its image tag asks for, unless a test steers it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod};
use kube::ResourceExt;

/// The label, with value `true`, of the config maps that steer the pods of their namespace.
pub const STEER_LABEL: &str = "windlass.test/steer";

/// The behaviour of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fare {
    /// Runs and is ready. With a `restartPolicy` other than `Always`, it completes.
    Runs,
    /// Runs and is ready, whatever its `restartPolicy`. Only steering sets this.
    Stays,
    /// Runs and is never ready.
    Unready,
    /// Runs and becomes ready 5 s after its start.
    Slow,
    /// `CrashLoopBackOff`.
    Crashes,
    /// `ImagePullBackOff`.
    NoImage,
    /// `ContainerCreating`, since a volume cannot be mounted.
    Creating,
    /// Crashes like a real container: runs without being ready, terminates, is in `CrashLoopBackOff`, and restarts.
    Restarts,
    /// As [`Self::Restarts`], killed each time because it is out of memory.
    OutOfMemory,
    /// Fails to pull, like a real kubelet: `ErrImagePull` and `ImagePullBackOff` in turn.
    Pulls,
}

/// What a kubelet leaves out of the statuses of pods. The API allows all of it to be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Report {
    /// Nothing.
    #[default]
    Full,
    /// What the stages of kwok leave out: IDs of images and containers, and past states.
    Kwok,
    /// All about containers, the machine's address, and when conditions changed, as some virtual kubelets do.
    Virtual,
}

impl Fare {
    fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "ready" => Self::Stays,
            "unready" => Self::Unready,
            "slow" => Self::Slow,
            "crash" => Self::Crashes,
            "nope" => Self::NoImage,
            "creating" => Self::Creating,
            "crash-loop" => Self::Restarts,
            "oom" => Self::OutOfMemory,
            "pull-loop" => Self::Pulls,
            _ => return None,
        })
    }

    fn of_image(image: &str) -> Self {
        let tag = tag(image);
        ["unready", "slow", "crash-loop", "crash", "oom", "pull-loop", "nope"]
            .into_iter()
            .find(|word| tag.contains(word))
            .and_then(Self::of_word)
            .unwrap_or(Self::Runs)
    }
}

fn tag(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map_or("", |(_, tag)| tag)
}

/// The steering by namespace: the data of all its steering config maps.
///
/// A key is a pod's name (its main containers), `<pod>.<container>` (one container, sidecars too) or `claim.<claim>`.
/// A value is a list of words: for containers `ready`, `unready`, `slow`, `crash`, `nope`, `creating`, `crash-loop`,
/// `oom`, `pull-loop`; for pods also `dead` (its node is lost: not Ready, and never gone), `evicted` (it is evicted soon, or
/// rejected if it has not started), `hold-terminating` (it does not terminate while the word is set) and `whole-grace` (it
/// takes all of its grace period); for claims `unbound`. The key `kubelet` has a word for all pods: `kwok` or `virtual`,
/// what the kubelet leaves out of their statuses. Any other word, such as `default`, has no effect.
#[derive(Debug, Default)]
pub(super) struct Steering {
    maps: BTreeMap<(String, String), BTreeMap<String, String>>,
}

impl Steering {
    pub(super) fn set(&mut self, map: ConfigMap) {
        let key = (map.namespace().unwrap_or_default(), map.name_any());
        self.maps.insert(key, map.data.unwrap_or_default());
    }

    pub(super) fn remove(&mut self, map: &ConfigMap) {
        self.maps.remove(&(map.namespace().unwrap_or_default(), map.name_any()));
    }

    pub(super) fn clear(&mut self) {
        self.maps.clear();
    }

    fn words(&self, namespace: &str, key: &str) -> impl Iterator<Item = &str> {
        self.maps
            .iter()
            .filter(move |((of, _), _)| of == namespace)
            .filter_map(move |(_, data)| data.get(key))
            .flat_map(|value| value.split([' ', ',', '\n']))
    }

    fn has_word(&self, namespace: &str, key: &str, word: &str) -> bool {
        self.words(namespace, key).any(|given| given == word)
    }

    pub(super) fn holds_claim(&self, namespace: &str, claim: &str) -> bool {
        self.has_word(namespace, &format!("claim.{claim}"), "unbound")
    }

    /// The steering of this pod.
    pub(super) fn orders(&self, pod: &Pod) -> Orders {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let fare = |key: &str| self.words(&namespace, key).find_map(Fare::of_word);
        let spec = pod.spec.as_ref();
        let of = |container: &Container, whole_pod: Option<Fare>| {
            let fare_of = fare(&format!("{name}.{}", container.name)).or(whole_pod);
            let image = container.image.as_deref().unwrap_or_default();
            (container.name.clone(), fare_of.unwrap_or_else(|| Fare::of_image(image)))
        };
        let main = fare(&name);
        let mut fares: BTreeMap<String, Fare> = BTreeMap::new();
        for container in spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten() {
            fares.extend([of(container, None)]);
        }
        for container in spec.into_iter().flat_map(|spec| &spec.containers) {
            fares.extend([of(container, main)]);
        }
        let dead = self.has_word(&namespace, &name, "dead");
        let report = match self.words(&namespace, "kubelet").next() {
            Some("kwok") => Report::Kwok,
            Some("virtual") => Report::Virtual,
            _ => Report::Full,
        };
        let has = |word: &str| self.has_word(&namespace, &name, word);
        Orders {
            dead,
            hold: dead || has("hold-terminating"),
            lingers: has("whole-grace"),
            evicted: has("evicted"),
            report,
            fares,
        }
    }
}

/// The behaviour of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) dead: bool,
    pub(super) hold: bool,
    pub(super) evicted: bool,
    pub(super) report: Report,
    /// It takes all of its grace period.
    pub(super) lingers: bool,
    fares: BTreeMap<String, Fare>,
}

impl Orders {
    pub(super) fn fare(&self, container: &str) -> Fare {
        self.fares.get(container).copied().unwrap_or(Fare::Runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_tag_and_not_name_determines_container_behaviour() {
        for (image, fare) in [
            ("nginx", Fare::Runs),
            ("nginx:1.27", Fare::Runs),
            ("nope:1", Fare::Runs),
            ("registry:5000/nope", Fare::Runs),
            ("registry:5000/x:2-nope", Fare::NoImage),
            ("x:crash@sha256:00", Fare::Crashes),
            ("x:unready", Fare::Unready),
            ("x:slow-1", Fare::Slow),
            ("x:2-crash-loop", Fare::Restarts),
            ("x:pull-loop", Fare::Pulls),
            ("x:2-oom", Fare::OutOfMemory),
        ] {
            assert_eq!(Fare::of_image(image), fare, "{image}");
        }
    }
}
