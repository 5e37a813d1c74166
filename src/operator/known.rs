//! The UIDs of the objects that are reconciled: of one that is gone, only the name is left.

use std::sync::Arc;

use crate::cache::remembered::Remembered;
use crate::controller::Context;
use crate::controller::failures::Failures;
use windlass_kube_port::{Key, Kind};

/// The UIDs of an object that is reconciled, under which something is kept about it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Uids {
    /// The UID of the fleet or the node.
    pub own: String,
    /// The UID of the node's StatefulSet, as far as the node's status has it.
    pub stateful_set: Option<String>,
}

/// By kind and key.
#[derive(Default)]
pub struct Known {
    uids: Remembered<str, Arc<Uids>>,
}

impl Known {
    /// Records the UIDs of an object that is about to be reconciled. Forgets earlier objects of its name.
    pub fn track(&self, cx: &Context, kind: Kind, key: &Key, uids: Uids) {
        let id = Failures::id(kind, key);
        let Some(known) = self.uids.get(&id) else { return self.uids.put(&id, Arc::new(uids)) };
        // A status that lost the UID of the StatefulSet says nothing about it.
        let stateful_set = uids.stateful_set.or_else(|| known.stateful_set.clone());
        let uids = Uids { stateful_set, ..uids };
        if *known == uids {
            return;
        }
        if known.own != uids.own {
            cx.forget(&known.own);
        }
        if let Some(set) = known.stateful_set.as_ref().filter(|set| Some(*set) != uids.stateful_set.as_ref())
        {
            cx.forget(set);
        }
        self.uids.put(&id, Arc::new(uids));
    }

    /// Forgets an object that is gone.
    pub fn untrack(&self, cx: &Context, kind: Kind, key: &Key) {
        let id = Failures::id(kind, key);
        cx.failures.end(&id);
        if let Some(known) = self.uids.take(&id) {
            cx.forget(&known.own);
            known.stateful_set.iter().for_each(|set| cx.forget(set));
        }
    }
}
