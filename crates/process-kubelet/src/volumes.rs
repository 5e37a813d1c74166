//! Volumes as local folders. An error is the message of the event FailedMount; the caller retries.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{
        DownwardAPIVolumeFile, KeyToPath, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
        ServiceAccountTokenProjection, Volume, VolumeProjection,
    },
};
use kube::{Api, Client, api::PostParams};

use crate::{downward, env::Sources, resources};

const FILE_MODE: i32 = 0o644;

/// Creates a pod's volumes.
pub(crate) struct Volumes<'a> {
    pub(crate) client: &'a Client,
    pub(crate) pod: &'a Pod,
    pub(crate) ip: Ipv4Addr,
    /// The pod's folder.
    pub(crate) folder: &'a Path,
}

/// A file of a volume: its relative path, its content and its mode.
type File = (String, Vec<u8>, i32);

impl Volumes<'_> {
    /// Creates all volumes, and returns their folders.
    pub(crate) async fn make(&self) -> Result<BTreeMap<String, PathBuf>, String> {
        let mut made = BTreeMap::new();
        for volume in self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let at = self.volume(volume).await;
            let at =
                at.map_err(|why| format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name))?;
            made.insert(volume.name.clone(), at);
        }
        Ok(made)
    }

    async fn volume(&self, volume: &Volume) -> Result<PathBuf, String> {
        let own = self.folder.join("volumes").join(&volume.name);
        if let Some(claim) = &volume.persistent_volume_claim {
            return self.claimed(&claim.claim_name).await;
        }
        if volume.ephemeral.is_some() {
            let pod = self.pod.metadata.name.as_deref().unwrap_or_default();
            return self.claimed(&format!("{pod}-{}", volume.name)).await;
        }
        if let Some(host) = &volume.host_path {
            return Ok(PathBuf::from(&host.path));
        }
        fs::create_dir_all(&own).map_err(|error| error.to_string())?;
        if volume.empty_dir.is_none() {
            let files = self.files(volume).await?;
            write(&own, files).map_err(|error| error.to_string())?;
        }
        Ok(own)
    }

    async fn claimed(&self, name: &str) -> Result<PathBuf, String> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), self.namespace());
        let claim = claims.get_opt(name).await.map_err(message)?;
        let claim = claim.ok_or_else(|| format!("persistentvolumeclaim {name:?} not found"))?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).filter(|volume| !volume.is_empty());
        let volume = volume.ok_or_else(|| format!("persistentvolumeclaim {name:?} is not bound"))?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let found = volumes.get_opt(&volume).await.map_err(message)?;
        let found = found.ok_or_else(|| format!("persistentvolume {volume:?} not found"))?;
        let path = found.spec.and_then(|spec| spec.host_path).map(|host| PathBuf::from(host.path));
        let path = path.ok_or_else(|| format!("persistentvolume {volume:?} is no folder"))?;
        fs::create_dir_all(&path).map_err(|error| error.to_string())?;
        Ok(path)
    }

    async fn files(&self, volume: &Volume) -> Result<Vec<File>, String> {
        if let Some(source) = &volume.config_map {
            let mode = source.default_mode.unwrap_or(FILE_MODE);
            let optional = source.optional == Some(true);
            return self.config_map(&source.name, source.items.as_deref(), optional, mode).await;
        }
        if let Some(source) = &volume.secret {
            let mode = source.default_mode.unwrap_or(FILE_MODE);
            let name = source.secret_name.as_deref().unwrap_or_default();
            let optional = source.optional == Some(true);
            return self.secret(name, source.items.as_deref(), optional, mode).await;
        }
        if let Some(source) = &volume.downward_api {
            let mode = source.default_mode.unwrap_or(FILE_MODE);
            return self.downward(source.items.iter().flatten(), mode);
        }
        let Some(source) = &volume.projected else {
            return Err("volumes of this kind are not supported".to_owned());
        };
        let mode = source.default_mode.unwrap_or(FILE_MODE);
        let mut files = Vec::new();
        for part in source.sources.iter().flatten() {
            files.extend(self.projection(part, mode).await?);
        }
        Ok(files)
    }

    async fn projection(&self, part: &VolumeProjection, mode: i32) -> Result<Vec<File>, String> {
        if let Some(source) = &part.config_map {
            let optional = source.optional == Some(true);
            return self.config_map(&source.name, source.items.as_deref(), optional, mode).await;
        }
        if let Some(source) = &part.secret {
            let optional = source.optional == Some(true);
            return self.secret(&source.name, source.items.as_deref(), optional, mode).await;
        }
        if let Some(source) = &part.downward_api {
            return self.downward(source.items.iter().flatten(), mode);
        }
        match &part.service_account_token {
            Some(source) => Ok(vec![(source.path.clone(), self.token(source).await?, mode)]),
            None => Err("a projection of this kind is not supported".to_owned()),
        }
    }

    async fn config_map(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: bool,
        mode: i32,
    ) -> Result<Vec<File>, String> {
        let sources = Sources::fetch(self.client, self.namespace(), vec![name.to_owned()], Vec::new())
            .await
            .map_err(message)?;
        keyed(&format!("configmap {name:?}"), sources.config_map(name), items, optional, mode)
    }

    async fn secret(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: bool,
        mode: i32,
    ) -> Result<Vec<File>, String> {
        let sources = Sources::fetch(self.client, self.namespace(), Vec::new(), vec![name.to_owned()])
            .await
            .map_err(message)?;
        keyed(&format!("secret {name:?}"), sources.secret(name), items, optional, mode)
    }

    fn downward<'b>(
        &self,
        items: impl Iterator<Item = &'b DownwardAPIVolumeFile>,
        mode: i32,
    ) -> Result<Vec<File>, String> {
        let file = |item: &DownwardAPIVolumeFile| {
            let value = match (&item.field_ref, &item.resource_field_ref) {
                (Some(reference), _) => downward::field(self.pod, &reference.field_path, self.ip)?,
                (None, Some(reference)) => resources::value(self.pod, None, reference)?,
                (None, None) => return Err(format!("{}: it has no source", item.path)),
            };
            Ok((item.path.clone(), value.into_bytes(), item.mode.unwrap_or(mode)))
        };
        items.map(file).collect()
    }

    /// A token of the pod's account, bound to the pod.
    async fn token(&self, source: &ServiceAccountTokenProjection) -> Result<Vec<u8>, String> {
        let meta = &self.pod.metadata;
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
        };
        let spec = TokenRequestSpec {
            audiences: Some(source.audience.iter().cloned().collect()),
            bound_object_ref: Some(bound),
            expiration_seconds: source.expiration_seconds,
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace());
        let account = account.unwrap_or("default");
        let granted = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(message)?;
        Ok(granted.status.and_then(|status| status.token).unwrap_or_default().into_bytes())
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
}

/// The files of a ConfigMap or Secret: all keys, or the selected ones under their paths.
fn keyed(
    what: &str,
    data: Option<BTreeMap<String, Vec<u8>>>,
    items: Option<&[KeyToPath]>,
    optional: bool,
    mode: i32,
) -> Result<Vec<File>, String> {
    let Some(mut data) = data else {
        return if optional { Ok(Vec::new()) } else { Err(format!("{what} not found")) };
    };
    let Some(items) = items else {
        return Ok(data.into_iter().map(|(key, bytes)| (key, bytes, mode)).collect());
    };
    let mut files = Vec::new();
    for item in items {
        match data.remove(&item.key) {
            Some(bytes) => files.push((item.path.clone(), bytes, item.mode.unwrap_or(mode))),
            None if optional => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(files)
}

fn write(folder: &Path, files: Vec<File>) -> std::io::Result<()> {
    for (path, bytes, mode) in files {
        let path = folder.join(path.trim_start_matches('/'));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // Renamed atomically, so that nobody reads a partial file.
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, bytes)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(mode.cast_unsigned()))?;
        fs::rename(&unfinished, &path)?;
    }
    Ok(())
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn message(error: kube::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> BTreeMap<String, Vec<u8>> {
        BTreeMap::from([("a".to_owned(), b"1".to_vec()), ("b".to_owned(), b"2".to_vec())])
    }

    #[test]
    fn items_select_and_rename_keys() {
        let items = [KeyToPath { key: "b".to_owned(), path: "d/e".to_owned(), mode: Some(0o600) }];
        let files = keyed("configmap \"m\"", Some(data()), Some(&items), false, 0o644).unwrap();
        assert_eq!(files, [("d/e".to_owned(), b"2".to_vec(), 0o600)]);
        assert_eq!(keyed("configmap \"m\"", Some(data()), None, false, 0o644).unwrap().len(), 2);
    }

    #[test]
    fn missing_source_is_an_error_unless_optional() {
        let missing = [KeyToPath { key: "z".to_owned(), path: "z".to_owned(), mode: None }];
        let of = |data, items, optional| keyed("secret \"s\"", data, items, optional, 0o644);
        assert_eq!(of(None, None, false), Err("secret \"s\" not found".to_owned()));
        assert_eq!(of(None, None, true), Ok(Vec::new()));
        assert!(of(Some(data()), Some(&missing), false).is_err());
        assert_eq!(of(Some(data()), Some(&missing), true), Ok(Vec::new()));
    }
}
