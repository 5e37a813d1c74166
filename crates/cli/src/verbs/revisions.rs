//! The stored revisions of a fleet: their differences, and rollback to one.

use std::fmt::Write as _;

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Map, Value, json};

use super::change::{Change, Write, is_promoting};
use super::record::{recorded_request, sentence};
use windlass_core::api::names::{ANNOTATION_BUILD_ID, LABEL_DEPLOYMENT};
use windlass_core::api::{RequestedRollback, StatefulNodeSpec};
use windlass_core::revision::{RevisionData, drift, revision_name, sizes_of, with_sizes};

/// The fleet's template, as a JSON pointer.
const TEMPLATE: &str = "/spec/template/spec";

/// The most differences in a row of the table.
pub const SHOWN: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct StoredRevision {
    /// Its ControllerRevision's name.
    pub name: String,
    /// Its revision number; later ones are higher.
    pub number: i64,
    /// When it was first the target.
    pub made_at: Option<DateTime<Utc>>,
    /// The `unsafeCustomBuildID` that it was rolled out with, empty if none was set; `None` if unknown.
    pub build_id: Option<String>,
    /// Its content.
    pub data: RevisionData,
}

/// The revisions of a fleet, oldest first, without those that this version cannot read.
pub async fn stored(client: &Client, namespace: &str, fleet: &Value) -> Result<Vec<StoredRevision>, String> {
    let name = fleet["metadata"]["name"].as_str().unwrap_or_default();
    let kind = GroupVersionKind::gvk("apps", "v1", "ControllerRevision");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
    let params = ListParams::default().labels(&format!("{LABEL_DEPLOYMENT}={name},!windlass.dev/node"));
    let found =
        api.list(&params).await.map_err(|e| format!("its revisions cannot be listed: {}", sentence(e)))?;
    let uid = &fleet["metadata"]["uid"];
    let is_owned = |revision: &Value| {
        revision["metadata"]["ownerReferences"].as_array().is_some_and(|o| o.iter().any(|o| o["uid"] == *uid))
    };
    let objects = found.items.iter().map(|object| json!(object)).filter(is_owned);
    let mut stored: Vec<StoredRevision> = objects
        .filter_map(|object| {
            let data = RevisionData::from_value(&object["data"]).ok()?;
            Some(StoredRevision {
                name: object["metadata"]["name"].as_str()?.to_owned(),
                number: object["revision"].as_i64().unwrap_or_default(),
                made_at: object["metadata"]["creationTimestamp"].as_str().and_then(|t| t.parse().ok()),
                build_id: build_id_of(fleet, &object, &data),
                data,
            })
        })
        .collect();
    stored.sort_by_key(|revision| revision.number);
    Ok(stored)
}

/// The `unsafeCustomBuildID` that a revision was rolled out with: one that is recorded and that matches the hash in
/// its name.
fn build_id_of(fleet: &Value, revision: &Value, data: &RevisionData) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (meta, status) = (&fleet["metadata"], &fleet["status"]);
    let message = [
        &revision["metadata"]["annotations"][ANNOTATION_BUILD_ID],
        &fleet["spec"]["unsafeCustomBuildID"],
        &status["activeBuildID"],
        &status["rollout"]["buildID"],
    ];
    let retiring = status["retiring"].as_array().map(Vec::as_slice).unwrap_or_default();
    let message = message.into_iter().chain(retiring.iter().map(|set| &set["buildID"])).map(text);
    let (name, uid) = (text(&meta["name"]), text(&meta["uid"]));
    let gives_the_name = |id: &String| {
        let hash = data.rollout_hash(id);
        revision["metadata"]["name"] == *revision_name(&name, &uid, &hash).as_str()
    };
    [String::new()].into_iter().chain(message).find(gives_the_name)
}

/// The output of `windlass history`: the revisions, newest first, each with its differences from the one before it;
/// then the ended plans.
pub fn table(fleet: &Value, stored: &[StoredRevision], now: DateTime<Utc>) -> String {
    let status = &fleet["status"];
    let mut rows = vec![["REVISION", "NAME", "STATUS", "AGE", "BUILD", "IMAGE", "CHANGE"].map(str::to_owned)];
    for (index, revision) in stored.iter().enumerate().rev() {
        let current = status["currentRevision"] == revision.name.as_str();
        let wanted = status["updateRevision"] == revision.name.as_str();
        let word = match (current, wanted) {
            (true, true) => "current",
            (true, false) => "last completed",
            (false, true) => "target",
            (false, false) => "",
        };
        let change = match index.checked_sub(1).map(|before| &stored[before]) {
            Some(before) => drift::summary(&before.data.diff(&revision.data), SHOWN),
            None => "the oldest stored revision".to_owned(),
        };
        rows.push([
            revision.number.to_string(),
            revision.name.clone(),
            word.to_owned(),
            revision.made_at.map(|at| age(now - at)).unwrap_or_default(),
            build(revision).to_owned(),
            image(&revision.data),
            change,
        ]);
    }
    format!("{}{}", aligned(&rows), ended(status, now))
}

/// The ended plans, newest first, after an empty line; empty without plans.
pub fn ended(status: &Value, now: DateTime<Utc>) -> String {
    let history = status["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    if history.is_empty() {
        return String::new();
    }
    let mut rows = vec![["PLAN", "RECIPE", "TARGET", "OUTCOME", "ENDED", "WHY"].map(str::to_owned)];
    for entry in history.iter().rev() {
        let word = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let ended = entry["finishedAt"].as_str().and_then(|t| t.parse::<DateTime<Utc>>().ok());
        let why = [word("reason"), word("message")];
        let why: Vec<&str> = why.iter().map(String::as_str).filter(|w| !w.is_empty()).collect();
        rows.push([
            word("planID"),
            word("recipe"),
            windlass_core::planner::fleet::status::short(&word("targetHash")).to_owned(),
            word("outcome"),
            ended.map(|at| format!("{} ago", age(now - at))).unwrap_or_default(),
            why.join(": "),
        ]);
    }
    format!("\n{}", aligned(&rows))
}

/// The revisions' names, a line each, newest first.
pub fn names(stored: &[StoredRevision]) -> String {
    let names = stored.iter().rev().map(|revision| revision.name.as_str());
    names.flat_map(|name| ["controllerrevision.apps/", name, "\n"]).collect()
}

/// The title of a fleet's table, if there are several.
pub fn title(fleet: &Value, index: usize, of: usize) -> String {
    let text = |field: &str| fleet["metadata"][field].as_str().unwrap_or_default();
    match (of, index) {
        (1, _) => String::new(),
        (_, 0) => format!("{} in {}\n", text("name"), text("namespace")),
        _ => format!("\n{} in {}\n", text("name"), text("namespace")),
    }
}

/// The output of `windlass history -o json`: the revisions, oldest first, and the ended plans.
pub fn document(fleet: &Value, stored: &[StoredRevision]) -> Value {
    let revision = |revision: &StoredRevision| {
        json!({
            "revision": revision.number,
            "name": revision.name,
            "createdAt": revision.made_at.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true)),
            "buildID": revision.build_id,
            "rolloutHash": hash_of(fleet, revision),
            "image": image(&revision.data),
            "isCurrent": fleet["status"]["currentRevision"] == revision.name.as_str(),
            "isTarget": fleet["status"]["updateRevision"] == revision.name.as_str(),
        })
    };
    json!({
        "namespace": fleet["metadata"]["namespace"],
        "name": fleet["metadata"]["name"],
        "revisions": stored.iter().map(revision).collect::<Vec<_>>(),
        "history": fleet["status"]["history"].as_array().cloned().unwrap_or_default(),
    })
}

/// The build ID, or kubectl's `<none>` or `<unknown>`.
fn build(revision: &StoredRevision) -> &str {
    match revision.build_id.as_deref() {
        None => "<unknown>",
        Some("") => "<none>",
        Some(id) => id,
    }
}

fn image(data: &RevisionData) -> String {
    let spec = data.apply_to(&StatefulNodeSpec::default());
    windlass_core::revision::main_image(&spec).unwrap_or_default().to_owned()
}

pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut table = Table::new();
    // A line that is too long for the terminal stays one line, as in kubectl.
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let mut text = String::new();
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// An age as kubectl prints it, in the largest unit that is precise enough.
pub fn age(passed: chrono::TimeDelta) -> String {
    let seconds = passed.num_seconds().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Sets the template and the build ID to those of a stored revision.
pub fn rollback(fleet: &Value, stored: &[StoredRevision], to: Option<&str>) -> Result<Change, String> {
    let live: StatefulNodeSpec = serde_json::from_value(fleet["spec"]["template"]["spec"].clone())
        .map_err(|e| format!("cannot read spec.template.spec: {e}"))?;
    // The data of ConfigMaps and Secrets does not go back with a template.
    let written = |revision: &StoredRevision| revision.data.clone().without_config();
    let wanted = RevisionData::of(&live).without_config();
    let build_id = fleet["spec"]["unsafeCustomBuildID"].as_str().unwrap_or_default();
    // Nodes that are updated in place take no build ID.
    let in_place = matches!(fleet["spec"]["updateStrategy"]["type"].as_str(), None | Some("" | "InPlace"));
    let is_same_id =
        |revision: &StoredRevision| in_place || revision.build_id.as_deref().is_none_or(|id| id == build_id);
    let is_wanted = |revision: &StoredRevision| {
        let wanted = wanted.clone().with_sizes_of(&revision.data.volume_claim_templates);
        is_same_id(revision) && wanted.diff(&written(revision)).is_empty()
    };
    if to.is_none()
        && let Some((revision, back)) = way_back(fleet, stored).filter(|(revision, _)| is_wanted(revision))
    {
        let at = back.at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let message = format!(
            "it was already rolled back to revision {} (requested by {} at {at}); use --to REVISION for another one",
            revision.number, back.by
        );
        return Ok(Change::already("rollback", message));
    }
    let chosen = match to {
        Some(name) => stored
            .iter()
            .find(|r| r.name == name || r.number.to_string() == name)
            .ok_or_else(|| format!("revision {name} is not stored; see windlass history"))?,
        None => default_revision(fleet, stored, is_wanted)?,
    };
    if is_wanted(chosen) {
        let has_config = chosen.data != written(chosen);
        let data = "; the data of its ConfigMaps and Secrets does not go back with it: restore that at its source, or \
                    name another revision with --to";
        return Ok(Change::already(
            "rollback",
            format!(
                "its template is already that of revision {}{}",
                chosen.number,
                if has_config { data } else { "" }
            ),
        ));
    }
    let mut message = format!("rolled back to revision {} ({})", chosen.number, image(&chosen.data));
    let template = (TEMPLATE, template_at(fleet, &written(chosen)));
    let write = match &chosen.build_id {
        None if !in_place => {
            return Err(format!(
                "the unsafeCustomBuildID of revision {} is not recorded: set spec.unsafeCustomBuildID to the \
                 build ID that it needs, and spec.template to the template in kubectl get controllerrevision {}",
                chosen.number, chosen.name
            ));
        }
        Some(id) if !is_same_id(chosen) => {
            let was = if id.is_empty() {
                "without unsafeCustomBuildID".to_owned()
            } else {
                format!("build ID {id}")
            };
            message = format!("rolled back to revision {} ({}, {was})", chosen.number, image(&chosen.data));
            Write::Fields(vec![template, ("/spec/unsafeCustomBuildID", json!(id))])
        }
        _ => Write::Field(template.0, template.1),
    };
    if is_promoting(fleet) && fleet["status"]["rollout"]["recipe"] == "BlueGreenImmediate" {
        message.push_str(
            "; the rollback starts when the new nodes are available and traffic has moved. Under promotion: Immediately a \
             rollout cannot be rolled back before that: if its image cannot run, fix the image first",
        );
    } else if is_promoting(fleet) {
        message
            .push_str("; the rollback starts once traffic has moved: the current promotion finishes first");
    }
    // The differences, from the target to the chosen revision.
    let differs = drift::summary(&wanted.diff(&written(chosen)), usize::MAX);
    let in_source = format!("spec.template.spec to that of revision {} ({differs})", chosen.number);
    Ok(Change {
        back_to: Some(chosen.name.clone()),
        in_source: Some(in_source),
        ..Change::done("rollback", write, message)
    })
}

/// The last requested rollback, unless it was aborted or another target was set since. A repeated
/// command must not roll forward again.
fn way_back<'a>(
    fleet: &Value,
    stored: &'a [StoredRevision],
) -> Option<(&'a StoredRevision, RequestedRollback)> {
    let back = recorded_request(fleet)?.rollback?;
    let revision = stored.iter().find(|r| r.name == back.to)?;
    let (status, hash) = (&fleet["status"], hash_of(fleet, revision));
    let given_up = status["rejected"]["hash"] == hash && status["currentRevision"] != revision.name.as_str();
    let history = status["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    // By the plans, not by the time: another clock may have set it.
    let since =
        history.iter().rposition(|entry| entry["planID"] == back.plan_id).map_or(0, |index| index + 1);
    let is_other = |entry: &Value| entry["targetHash"].as_str().is_some_and(|h| !h.is_empty() && h != hash);
    (!given_up && !history[since..].iter().any(is_other)).then_some((revision, back))
}

/// The rollout hash that a revision's name was made from.
fn hash_of(fleet: &Value, revision: &StoredRevision) -> String {
    let build_id = fleet["spec"]["unsafeCustomBuildID"].as_str().unwrap_or_default();
    revision.data.rollout_hash(revision.build_id.as_deref().unwrap_or(build_id)).to_string()
}

fn default_revision<'a>(
    fleet: &Value,
    stored: &'a [StoredRevision],
    is_wanted: impl Fn(&StoredRevision) -> bool,
) -> Result<&'a StoredRevision, String> {
    let status = &fleet["status"];
    let completed = stored.iter().position(|r| status["currentRevision"] == r.name.as_str());
    // Repeating the command while the rollback is under way, or waits for a promotion, is the same request.
    let goes_back = matches!(
        status["rollout"]["cause"].as_str(),
        Some("TemplateChanged" | "ConfigChanged" | "Superseded" | "RetryRequested")
    ) && status["rollout"]["stage"] != "Retiring";
    match completed {
        Some(index) if !is_wanted(&stored[index]) || goes_back => Ok(&stored[index]),
        Some(index) => completed_before(fleet, stored, &stored[index]).ok_or_else(|| {
            "no completed revision before the current one is stored; name one with --to; see windlass history"
                .to_owned()
        }),
        None => Err("no rollout has completed yet: there is no revision to roll back to".to_owned()),
    }
}

/// The last completed revision before this one: a superseded or aborted one never ran on every node. What a completed
/// plan started from counts too, since the first revision has no plan.
fn completed_before<'a>(
    fleet: &Value,
    stored: &'a [StoredRevision],
    current: &StoredRevision,
) -> Option<&'a StoredRevision> {
    let status = &fleet["status"];
    let history = status["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ended = history.iter().rev().filter(|entry| entry["outcome"] == "Complete");
    let hashes = ended.flat_map(|entry| [entry["targetHash"].as_str(), entry["fromHash"].as_str()]);
    // Once traffic has moved, the current revision serves but its plan is not over and not in the history yet.
    let moved_from =
        status["rollout"]["fromHash"].as_str().filter(|_| status["rollout"]["stage"] == "Retiring");
    [moved_from].into_iter().chain(hashes).flatten().find_map(|hash| {
        let has_the_hash = |r: &&StoredRevision| hash_of(fleet, r) == hash;
        stored.iter().rev().filter(|r| r.name != current.name).find(has_the_hash)
    })
}

/// Replaces what belongs to a revision, and keeps the fields that apply at once.
fn template_at(fleet: &Value, data: &RevisionData) -> Value {
    let mut spec = fleet["spec"]["template"]["spec"].as_object().cloned().unwrap_or_default();
    let mut stored = data.to_value();
    // Volumes that have grown since stay large.
    if let (Some(of_revision), Some(claims)) = (
        stored["volumeClaimTemplates"].as_array(),
        spec.get("volumeClaimTemplates").and_then(Value::as_array),
    ) {
        stored["volumeClaimTemplates"] = with_sizes(of_revision, &sizes_of(claims)).into();
    }
    for field in ["image", "mainContainer", "podTemplate", "volumeClaimTemplates"] {
        replace(&mut spec, field, stored.get(field));
    }
    match stored.get("sidecar").and_then(Value::as_object) {
        // A sidecar without an image is no container of the pod, and in no revision.
        None if spec.get("sidecar").is_some_and(|s| s["image"].as_str().unwrap_or_default().is_empty()) => {}
        None => drop(spec.remove("sidecar")),
        Some(of_revision) => {
            let mut sidecar = spec.get("sidecar").and_then(Value::as_object).cloned().unwrap_or_default();
            for field in ["image", "port", "resources", "args", "env", "volumeMounts"] {
                replace(&mut sidecar, field, of_revision.get(field));
            }
            spec.insert("sidecar".to_owned(), Value::Object(sidecar));
        }
    }
    Value::Object(spec)
}

fn replace(map: &mut Map<String, Value>, field: &str, value: Option<&Value>) {
    match value {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}
