//! Generates pod templates from numbers, deterministically. The generator may change; its output is recorded in
//! `generated.jsonl`.

use serde_json::{Map, Value, json};

/// The pod template of this number.
pub fn pod_template(seed: u64) -> Value {
    let mut dice = Dice(seed);
    let mut template = json!({"spec": {"containers": dice.list(1, 3, Dice::container)}});
    if dice.one_in(2) {
        template["metadata"] = json!({"labels": dice.words(), "annotations": dice.words()});
    }
    let spec = &mut template["spec"];
    for _ in 0..dice.below(7) {
        let (key, value) = dice.pod_field();
        spec[key] = value;
    }
    template
}

/// `SplitMix64`: small, and the same on every machine.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    fn list(&mut self, min: u64, max: u64, mut make: impl FnMut(&mut Self, u64) -> Value) -> Value {
        let length = min + self.below(max - min + 1);
        (0..length).map(|n| make(self, n)).collect()
    }

    fn word(&mut self) -> &'static str {
        self.pick(&[
            "",
            "db",
            "cache",
            "true",
            "1000m",
            "1Gi",
            "80",
            "ünï",
            "a/b",
            "x y",
            "line\nline",
            "\"quoted\"",
            "nvme",
            "0",
            "{}",
            "eu-west-1a",
            "$(POD_NAME)",
            "é",
            "\t",
            "v1:",
        ])
    }

    fn words(&mut self) -> Value {
        let mut map = Map::new();
        for _ in 0..self.below(4) {
            let key = self.pick(&["app", "tier", "checksum/config", "limits", "example.com/x", "a.b/c"]);
            map.insert(key.to_owned(), self.word().into());
        }
        map.into()
    }

    fn quantity(&mut self) -> Value {
        self.pick(&[
            json!("1"),
            json!(1),
            json!("1000m"),
            json!("250m"),
            json!("0.25"),
            json!(0.25),
            json!("1Gi"),
            json!("1024Mi"),
            json!("1G"),
            json!("1e9"),
            json!("1.5Gi"),
            json!(0),
            json!("100Mi"),
            json!("2k"),
            json!("3T"),
            json!("64Ki"),
            json!("7E"),
            json!("12u"),
            json!("bad"),
            json!("1e3"),
            json!(1.5),
            json!("0.1Gi"),
            json!("4Ei"),
            json!("-5"),
            json!("99999999999999999999"),
        ])
    }

    fn resources(&mut self) -> Value {
        let amounts = |dice: &mut Self| json!({"cpu": dice.quantity(), "memory": dice.quantity()});
        match self.below(4) {
            0 => json!({"limits": amounts(self)}),
            1 => json!({"requests": amounts(self)}),
            2 => json!({"requests": {"ephemeral-storage": self.quantity()}, "limits": amounts(self)}),
            _ => json!({"limits": {"nvidia.com/gpu": self.quantity()}, "claims": [{"name": self.word()}]}),
        }
    }

    fn probe(&mut self) -> Value {
        let port = self.pick(&[json!(80), json!("80"), json!("http")]);
        match self.below(3) {
            0 => json!({"httpGet": {"path": self.word(), "port": port}, "periodSeconds": self.below(30)}),
            1 => json!({"tcpSocket": {"port": port}, "initialDelaySeconds": self.below(90)}),
            _ => json!({"exec": {"command": [self.word(), self.word()]}}),
        }
    }

    fn variable(&mut self, n: u64) -> Value {
        let name = format!("VAR_{n}");
        match self.below(5) {
            0 => json!({"name": name}),
            1 => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
            2 => json!({"name": name, "valueFrom": {"resourceFieldRef": {
                "resource": "limits.memory", "divisor": self.quantity()}}}),
            3 => json!({"name": name, "valueFrom": {"secretKeyRef": {
                "name": self.word(), "key": "k", "optional": self.one_in(2)}}}),
            _ => json!({"name": name, "value": self.word()}),
        }
    }

    fn container(&mut self, n: u64) -> Value {
        let mut container = json!({"name": format!("c{n}"), "image": format!("image:{}", self.below(5))});
        for _ in 0..self.below(6) {
            let (key, value) = match self.below(10) {
                0 => ("args", self.list(0, 4, |dice, _| dice.word().into())),
                1 => ("env", self.list(0, 4, Self::variable)),
                2 => ("resources", self.resources()),
                3 => ("readinessProbe", self.probe()),
                4 => ("livenessProbe", self.probe()),
                5 => ("ports", self.list(0, 3, |dice, n| json!({"name": format!("p{n}"), "containerPort": dice.below(65536)}))),
                6 => ("volumeMounts", self.list(1, 3, |dice, n| json!({"name": "v0", "mountPath": format!("/m{n}"), "readOnly": dice.one_in(2)}))),
                7 => ("securityContext", self.pick(&[json!({}), json!({"privileged": false}), json!({"runAsUser": 0}), json!({"capabilities": {"drop": ["ALL"]}})])),
                8 => ("imagePullPolicy", self.pick(&[json!(""), json!("Always"), json!(null)])),
                _ => ("x-future", json!({"a": self.word(), "b": [], "c": {"d": null}})),
            };
            container[key] = value;
        }
        container
    }

    fn volume(&mut self, n: u64) -> Value {
        let name = format!("v{n}");
        match self.below(8) {
            0 => json!({"name": name, "emptyDir": {}}),
            1 => json!({"name": name, "emptyDir": {"medium": self.word(), "sizeLimit": self.quantity()}}),
            2 => json!({"name": name, "configMap": {"name": "c", "items": []}}),
            3 => json!({"name": name, "secret": {"secretName": "s", "optional": self.one_in(2)}}),
            4 => json!({"name": name, "hostPath": {"path": "/h", "type": self.word()}}),
            5 => json!({"name": name, "csi": {"driver": "d", "volumeAttributes": self.words()}}),
            6 => json!({"name": name, "projected": {"sources": [{"downwardAPI": {"items": [{"path": "p",
                "resourceFieldRef": {"resource": "requests.cpu", "divisor": self.quantity()}}]}}]}}),
            _ => json!({"name": name, "ephemeral": {"volumeClaimTemplate": {
                "metadata": {"labels": self.words()},
                "spec": {"storageClassName": self.word(), "resources": {"requests": {"storage": self.quantity()}}}}}}),
        }
    }

    fn selector(&mut self) -> Value {
        match self.below(4) {
            0 => json!({}),
            1 => json!(null),
            2 => json!({"matchLabels": self.words()}),
            _ => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [self.word()]}]}),
        }
    }

    fn pod_field(&mut self) -> (&'static str, Value) {
        match self.below(13) {
            0 => ("volumes", self.list(0, 4, Self::volume)),
            1 => ("initContainers", self.list(0, 2, |dice, n| dice.container(n + 10))),
            2 => ("nodeSelector", self.words()),
            3 => {
                ("tolerations", self.list(0, 2, |dice, _| json!({"key": dice.word(), "operator": "Exists"})))
            }
            4 => (
                "affinity",
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": self.selector(), "namespaceSelector": self.selector()}]}}),
            ),
            5 => (
                "topologySpreadConstraints",
                json!([{"maxSkew": self.below(3), "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": self.selector()}]),
            ),
            6 => {
                ("terminationGracePeriodSeconds", self.pick(&[json!(0), json!(30), json!(30.0), json!(600)]))
            }
            7 => ("hostNetwork", self.one_in(2).into()),
            8 => ("overhead", json!({"cpu": self.quantity()})),
            9 => ("resources", self.resources()),
            10 => ("securityContext", self.pick(&[json!({}), json!({"fsGroup": 0}), json!({"sysctls": []})])),
            11 => ("dnsConfig", json!({"options": [{"name": "ndots", "value": self.word()}]})),
            _ => ("serviceAccountName", self.word().into()),
        }
    }
}
