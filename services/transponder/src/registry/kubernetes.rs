//! The operator's hand on the registry of a Kubernetes API, with the operator's own rights.
//!
//! Everything is written with the version that was read, and tried again when somebody else was quicker. The right to read
//! a Secret comes before the Secret, that before the entry that names it, and all go in the opposite order: the edge never
//! sees an entry without a Secret that it may read.

mod role;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::{
    ByteString, NamespaceResourceScope,
    api::{
        core::v1::{ConfigMap, Secret},
        rbac::v1::{Role, RoleBinding},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Resource, api::DeleteParams};
use serde::{Serialize, de::DeserializeOwned};
use transponder_core::ClusterName;
use transponder_kubernetes::{Access, ApiError, Kind, creation};

use super::{Entry, PREVIOUS, TOKEN, TokenState, check_secret};
use crate::secret::random_token;

/// The ConfigMap of the entries.
const ENTRIES: &str = "cluster-registry";
/// The Role by which the edge reads the Secrets, and its RoleBinding.
pub const ROLE: &str = "transponder-edge-registry";
/// How often a write is tried that somebody else was quicker with, and how long after.
const TRIES: u32 = 8;
const AGAIN: Duration = Duration::from_millis(100);

/// What became of a cluster that was to be added.
pub enum Added {
    /// It is there now, with this token.
    New(String),
    /// It was there, and the edge could not read its Secret. Now it can.
    Permitted,
}

/// The registry of a Kubernetes API.
#[derive(Clone)]
pub struct KubernetesRegistry {
    access: Access,
}

impl KubernetesRegistry {
    /// The registry in the namespace of `access`.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self { access }
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.access.namespace()
    }

    /// Where it lies.
    #[must_use]
    pub fn place(&self) -> String {
        format!("ConfigMap {ENTRIES} in namespace {}", self.namespace())
    }

    /// Where a Secret lies.
    #[must_use]
    pub fn place_of(&self, secret: &str) -> String {
        format!("Secret {secret} in namespace {}", self.namespace())
    }

    /// All entries as they stand there, readable or not.
    ///
    /// # Errors
    /// When the API server does not answer, or there is no ConfigMap.
    pub async fn entries(&self) -> anyhow::Result<BTreeMap<String, String>> {
        match self.get::<ConfigMap>(ENTRIES).await? {
            Some(map) => Ok(map.data.unwrap_or_default()),
            None => bail!("there is no {}", self.place()),
        }
    }

    /// The entry of a cluster.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn entry(&self, cluster: &ClusterName) -> anyhow::Result<Entry> {
        let entries = self.entries().await?;
        let text = entries.get(cluster.as_str());
        let text = text.with_context(|| format!("there is no cluster {cluster} in {}", self.place()))?;
        serde_json::from_str(text).with_context(|| format!("{cluster} in {}", self.place()))
    }

    /// What lies in a Secret.
    ///
    /// # Errors
    /// When the API server does not tell.
    pub async fn token_state(&self, secret: &str) -> anyhow::Result<TokenState> {
        let data = self.tokens(secret).await?.unwrap_or_default();
        Ok(match (data.contains_key(TOKEN), data.contains_key(PREVIOUS)) {
            (false, _) => TokenState::Missing,
            (true, false) => TokenState::Present,
            (true, true) => TokenState::Rotating,
        })
    }

    /// The token in force in a Secret.
    ///
    /// # Errors
    /// When there is none, or the API server does not tell.
    pub async fn token(&self, secret: &str) -> anyhow::Result<String> {
        check_secret(secret)?;
        let data = self.tokens(secret).await?;
        let data = data.with_context(|| format!("there is no {}", self.place_of(secret)))?;
        let token = data.get(TOKEN).with_context(|| format!("Secret {secret} has no key {TOKEN}"))?;
        let text = String::from_utf8(token.0.clone()).with_context(|| format!("Secret {secret}: {TOKEN}"))?;
        Ok(text.trim().to_owned())
    }

    /// What stands in a Secret; `None` when there is no such Secret.
    ///
    /// # Errors
    /// When the API server does not tell.
    pub async fn tokens(&self, secret: &str) -> anyhow::Result<Option<BTreeMap<String, ByteString>>> {
        Ok(self.get::<Secret>(secret).await?.map(|secret| secret.data.unwrap_or_default()))
    }

    /// The Secrets that the edge may read by its Role.
    ///
    /// # Errors
    /// When the API server does not tell.
    pub async fn granted(&self) -> anyhow::Result<BTreeSet<String>> {
        let bound = self.get::<RoleBinding>(ROLE).await?.is_some_and(|binding| role::binds(&binding));
        let role = if bound { self.get::<Role>(ROLE).await? } else { None };
        Ok(role.map(role::named).unwrap_or_default())
    }

    /// Adds a cluster. One that is there already gets back the permission that it lacks, and nothing else.
    ///
    /// # Errors
    /// When it is there already and lacks nothing, its Secret is somebody else's, or something cannot be written.
    pub async fn add(&self, cluster: &ClusterName, entry: &Entry) -> anyhow::Result<Added> {
        let known = self.get::<ConfigMap>(ENTRIES).await?.and_then(|map| map.data).unwrap_or_default();
        let there = format!("cluster {cluster} is in {} already", self.place());
        if let Some(text) = known.get(cluster.as_str()) {
            let permitted = self.permit(&secret_of(cluster, text)).await?;
            ensure!(permitted, "{there}; 'cluster rotate' gives it a new token");
            return Ok(Added::Permitted);
        }
        let secret = &entry.relay_secret_name;
        check_secret(secret)?;
        let token = random_token()?;
        self.permit(secret).await?;
        self.change_secret(secret, |data| {
            data.clear();
            data.insert(TOKEN.into(), ByteString(token.clone().into_bytes()));
            Ok(())
        })
        .await?;
        let text = serde_json::to_string(entry)?;
        self.change(ENTRIES, |map: &mut ConfigMap| {
            let data = map.data.get_or_insert_default();
            ensure!(!data.contains_key(cluster.as_str()), "{there}");
            data.insert(cluster.to_string(), text.clone());
            Ok(())
        })
        .await?;
        Ok(Added::New(token))
    }

    /// Gives a cluster a new token, and back the permission that it lacks; the token before works until
    /// [`Self::finish_rotation`].
    ///
    /// # Errors
    /// When there is no such cluster, a rotation is under way, or its Secret is somebody else's.
    pub async fn rotate(&self, cluster: &ClusterName) -> anyhow::Result<(Entry, String)> {
        let entry = self.entry(cluster).await?;
        self.permit(&entry.relay_secret_name).await?;
        let token = random_token()?;
        self.change_secret(&entry.relay_secret_name, |data| {
            ensure!(
                !data.contains_key(PREVIOUS),
                "a rotation of {cluster} is under way; end it with 'cluster rotate {cluster} --finish'"
            );
            if let Some(old) = data.insert(TOKEN.into(), ByteString(token.clone().into_bytes())) {
                data.insert(PREVIOUS.into(), old);
            }
            Ok(())
        })
        .await?;
        Ok((entry, token))
    }

    /// Takes the previous token out of force.
    ///
    /// # Errors
    /// When there is none.
    pub async fn finish_rotation(&self, cluster: &ClusterName) -> anyhow::Result<()> {
        let secret = self.entry(cluster).await?.relay_secret_name;
        self.change_secret(&secret, |data| {
            ensure!(data.remove(PREVIOUS).is_some(), "no rotation of {cluster} is under way");
            Ok(())
        })
        .await
    }

    /// Removes a cluster, the right to read its Secret, and the Secret, unless another cluster names the same one or
    /// somebody else keeps it. Answers how many clusters are left.
    ///
    /// # Errors
    /// When there is no such cluster, or something cannot be written.
    pub async fn remove(&self, cluster: &ClusterName) -> anyhow::Result<usize> {
        let mut left = BTreeMap::new();
        let mut removed = None;
        self.change(ENTRIES, |map: &mut ConfigMap| {
            let data = map.data.get_or_insert_default();
            removed = data.remove(cluster.as_str());
            ensure!(removed.is_some(), "there is no cluster {cluster} in {}", self.place());
            left.clone_from(data);
            Ok(())
        })
        .await?;
        let name = secret_of(cluster, &removed.unwrap_or_default());
        let secret = |text: &String| serde_json::from_str::<Entry>(text).map(|entry| entry.relay_secret_name);
        if left.values().any(|text| secret(text).is_ok_and(|other| other == name)) {
            return Ok(left.len());
        }
        if self.get::<Role>(ROLE).await?.is_some() {
            self.change(ROLE, |role: &mut Role| {
                role::revoke(role, &name);
                Ok(())
            })
            .await?;
        }
        match self.get::<Secret>(&name).await? {
            Some(found) if keeper(&found).is_none() => {
                let api = self.access.api::<Secret>();
                let delete = async { api.delete(&name, &DeleteParams::default()).await };
                match self.access.call("delete a Secret", delete).await {
                    Err(error) if error.kind != Kind::NotFound => Err(error.into()),
                    _ => Ok(left.len()),
                }
            }
            _ => Ok(left.len()),
        }
    }

    /// Lets the edge read a Secret, by the Role and its binding; answers whether it could not before.
    async fn permit(&self, secret: &str) -> anyhow::Result<bool> {
        check_secret(secret)?;
        if self.granted().await?.contains(secret) {
            return Ok(false);
        }
        self.change(ROLE, |role: &mut Role| {
            role::grant(role, secret);
            Ok(())
        })
        .await?;
        self.change(ROLE, |binding: &mut RoleBinding| {
            role::bind(binding);
            Ok(())
        })
        .await?;
        Ok(true)
    }

    async fn change_secret(
        &self,
        name: &str,
        mut change: impl FnMut(&mut BTreeMap<String, ByteString>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.change(name, |secret: &mut Secret| {
            if let Some(keeper) = keeper(secret) {
                bail!(
                    "Secret {name} is kept by {keeper}, which would undo this: change it in its secret store"
                );
            }
            change(secret.data.get_or_insert_default())
        })
        .await
    }

    /// Changes an object, or makes it.
    async fn change<K>(
        &self,
        name: &str,
        mut change: impl FnMut(&mut K) -> anyhow::Result<()>,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + Default + Serialize + DeserializeOwned,
    {
        let (api, parameters) = (self.access.api::<K>(), creation());
        for _ in 0..TRIES {
            let found = self.get::<K>(name).await?;
            let there = found.is_some();
            let mut object = found.unwrap_or_else(|| {
                let mut object = K::default();
                *object.meta_mut() = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
                object
            });
            change(&mut object)?;
            let write = async {
                match there {
                    true => api.replace(name, &parameters, &object).await,
                    false => api.create(&parameters, &object).await,
                }
            };
            match self.access.call("write the registry", write).await {
                Ok(_) => return Ok(()),
                Err(error) if !there && error.kind == Kind::NotFound => {
                    let namespace = self.namespace();
                    bail!("namespace {namespace} does not exist: kubectl create namespace {namespace}")
                }
                Err(error) if matches!(error.kind, Kind::Conflict | Kind::Exists | Kind::NotFound) => {
                    tokio::time::sleep(AGAIN.mul_f64(0.5 + fastrand::f64())).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        bail!("{} {name} is changed by others all the time: try again", K::kind(&()))
    }

    async fn get<K>(&self, name: &str) -> Result<Option<K>, ApiError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = self.access.api();
        match self.access.call("read the registry", api.get(name)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Who makes a Secret again when it is changed, such as an ExternalSecret.
fn keeper(secret: &Secret) -> Option<String> {
    let owner = secret.metadata.owner_references.as_ref()?.first()?;
    Some(format!("{} {}", owner.kind, owner.name))
}

/// The Secret that an entry names. One that cannot be read does not: what 'cluster add' made has this name.
fn secret_of(cluster: &ClusterName, entry: &str) -> String {
    let entry = serde_json::from_str::<Entry>(entry);
    entry.map_or_else(|_| format!("cluster-{cluster}-relay-token"), |entry| entry.relay_secret_name)
}
