//! Substitutes for mounts and DNS in texts: in a container's command, arguments, environment, probes and hooks, paths
//! below a mount become folders of this machine, and host names of pods become addresses.
//!
//! Only the fully qualified form of a host name is replaced (`db-0.db.ns.svc`, with or without `.cluster.local`),
//! since a shorter one could be something else. A pod's address is derived from its name (see [`Addresses`]), so it
//! is known before the pod exists. `0.0.0.0`, `127.0.0.1` and `localhost` become that address, too.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Derives an address in 127.128.0.0/9 from a pod's name and the kubelet's seed, which differs between clusters on a
/// machine.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    seed: String,
}

impl Addresses {
    pub(crate) fn new(seed: &str) -> Self {
        Self { seed: seed.to_owned() }
    }

    pub(crate) fn of(&self, namespace: &str, pod: &str) -> Ipv4Addr {
        let digest = Sha256::digest(format!("{}/{namespace}/{pod}", self.seed).as_bytes());
        // Not a network's first or last address: some programs refuse those.
        Ipv4Addr::new(127, 128 | digest[0], digest[1], 1 + digest[2] % 254)
    }
}

/// The substitutions in one container's texts.
#[derive(Clone, Debug)]
pub(crate) struct Translation {
    addresses: Addresses,
    own: Ipv4Addr,
    /// The longest path first, so that nested mounts are found.
    mounts: Vec<(String, PathBuf)>,
}

const SUFFIX: &str = ".svc";
const DOMAIN: &str = ".cluster.local";

impl Translation {
    /// For a container in the pod with this address.
    pub(crate) fn new(
        addresses: &Addresses,
        own: Ipv4Addr,
        mounts: impl IntoIterator<Item = (String, PathBuf)>,
    ) -> Self {
        let mut mounts: Vec<_> = mounts.into_iter().map(|(at, to)| (trimmed(&at).to_owned(), to)).collect();
        mounts.sort_by_key(|(at, _)| std::cmp::Reverse(at.len()));
        Self { addresses: addresses.clone(), own, mounts }
    }

    /// The local path of a container's path; `None` if it is below no mount.
    pub(crate) fn path(&self, path: &str) -> Option<PathBuf> {
        self.mounts.iter().find_map(|(at, to)| {
            let rest = path.strip_prefix(at.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| below(to, rest))
        })
    }

    /// Substitutes all paths and host names in a text.
    pub(crate) fn text(&self, text: &str) -> String {
        self.hosts(&self.paths(text))
    }

    fn paths(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        let mut before = None;
        'next: while let Some(first) = rest.chars().next() {
            // A path starts after a character that cannot be part of one.
            if first == '/' && before.is_none_or(|c: char| !(c.is_alphanumeric() || "._-/~".contains(c))) {
                for (at, to) in &self.mounts {
                    let Some(after) = rest.strip_prefix(at.as_str()) else { continue };
                    let ends = after
                        .chars()
                        .next()
                        .is_none_or(|c| c == '/' || !(c.is_alphanumeric() || "._-".contains(c)));
                    if ends {
                        out.push_str(&to.to_string_lossy());
                        before = at.chars().last();
                        rest = after;
                        continue 'next;
                    }
                }
            }
            out.push(first);
            before = Some(first);
            rest = &rest[first.len_utf8()..];
        }
        out
    }

    fn hosts(&self, text: &str) -> String {
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|c| !of_name(c)).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            match self.host(name) {
                Some(address) => out.push_str(&address.to_string()),
                None => out.push_str(name),
            }
            let sign = after.chars().next().map_or(0, char::len_utf8);
            out.push_str(&after[..sign]);
            rest = &after[sign..];
        }
        out
    }

    fn host(&self, name: &str) -> Option<Ipv4Addr> {
        if matches!(name, "0.0.0.0" | "127.0.0.1" | "localhost") {
            return Some(self.own);
        }
        let name = name.strip_suffix(DOMAIN).unwrap_or(name).strip_suffix(SUFFIX)?;
        let labels: Vec<&str> = name.split('.').collect();
        let &[pod, service, namespace] = labels.as_slice() else { return None };
        let full = [pod, service, namespace].iter().all(|label| !label.is_empty());
        full.then(|| self.addresses.of(namespace, pod))
    }
}

fn trimmed(path: &str) -> &str {
    if path.len() > 1 { path.trim_end_matches('/') } else { path }
}

fn below(folder: &Path, rest: &str) -> PathBuf {
    let rest = rest.trim_start_matches('/');
    if rest.is_empty() { folder.to_owned() } else { folder.join(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translation() -> Translation {
        let mounts = [
            ("/data".to_owned(), PathBuf::from("/x/claim")),
            ("/data/wal/".to_owned(), PathBuf::from("/x/wal")),
        ];
        Translation::new(&Addresses::new("seed"), Ipv4Addr::new(127, 200, 0, 1), mounts)
    }

    #[test]
    fn path_below_a_mount_maps_to_the_volume() {
        let t = translation();
        assert_eq!(t.text("--data-dir=/data/etcd"), "--data-dir=/x/claim/etcd");
        assert_eq!(t.text("/data/wal/0 /data"), "/x/wal/0 /x/claim");
        assert_eq!(t.text("cp /data/a:/data/b"), "cp /x/claim/a:/x/claim/b");
        assert_eq!(t.path("/data/a"), Some(PathBuf::from("/x/claim/a")));
    }

    #[test]
    fn path_similar_to_a_mount_is_unchanged() {
        let t = translation();
        for text in ["/database", "/var/data/x", "/x/data", "data/", "/data-1", "https://h/data2"] {
            assert_eq!(t.text(text), text);
        }
        assert_eq!(t.path("/database"), None);
    }

    #[test]
    fn pod_fqdn_maps_to_its_address_before_creation() {
        let t = translation();
        let address = Addresses::new("seed").of("ns", "db-0").to_string();
        for host in ["db-0.db.ns.svc", "db-0.db.ns.svc.cluster.local"] {
            assert_eq!(t.text(&format!("http://{host}:2380,x")), format!("http://{address}:2380,x"));
        }
        for text in ["db-0.db", "db-0.db.ns", "db.ns.svc", "a.b.c.d.svc", "..a.svc", "db-0.db.ns.svc.example"]
        {
            assert_eq!(t.text(text), text);
        }
    }

    #[test]
    fn pod_local_addresses_map_to_its_own_address() {
        let t = translation();
        let texts = [
            ("--bind=0.0.0.0:7777", "--bind=127.200.0.1:7777"),
            ("http://localhost:80/", "http://127.200.0.1:80/"),
            ("127.0.0.1", "127.200.0.1"),
            (
                "127.0.0.11 10.0.0.0 localhost.crt my-localhost",
                "127.0.0.11 10.0.0.0 localhost.crt my-localhost",
            ),
        ];
        for (text, translated) in texts {
            assert_eq!(t.text(text), translated);
        }
    }

    #[test]
    fn pod_addresses_are_unique_loopback_and_per_cluster() {
        let here = Addresses::new("a");
        let of = |n: usize| here.of("ns", &format!("db-{n}"));
        let all: std::collections::BTreeSet<_> = (0..50).map(of).collect();
        assert_eq!(all.len(), 50);
        assert!(all.iter().all(|ip| ip.is_loopback() && ip.octets()[1] >= 128));
        assert_eq!(here.of("ns", "db-1"), of(1));
        assert_ne!(Addresses::new("b").of("ns", "db-1"), of(1));
    }
}
