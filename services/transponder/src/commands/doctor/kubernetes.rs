//! What a Kubernetes API must have before services can stand on it: the definitions, and the rights of their accounts.

mod rights;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, api::PostParams};
use transponder_kubernetes::{Access, ApiError, GROUP, Kind};

use super::finding::Findings;
use crate::commands::manifests;
use rights::Right;

const AREA: &str = "kubernetes";

/// Checks both, as far as whoever runs the doctor may see them.
pub(super) async fn check(access: &Access, findings: &mut Findings) {
    if definitions(access, findings).await {
        match rights::of_manifests(&manifests::rbac(access.namespace())) {
            Ok(rights) => accounts(access, &rights, findings).await,
            Err(error) => findings.wrong(AREA, &format!("{error:#}"), "this program", "use a released one"),
        }
    }
}

/// Whether the API server answers at all.
async fn definitions(access: &Access, findings: &mut Findings) -> bool {
    let version = format!("{GROUP}/v1");
    let client = access.client();
    let served = match access.call("tell what it serves", client.list_api_group_resources(&version)).await {
        Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
        // No resource of the group is.
        Err(ApiError { kind: Kind::NotFound | Kind::Missing, .. }) => Vec::new(),
        Err(error) => {
            let mend = "see to the API server, or correct the section";
            findings.wrong(AREA, &error.to_string(), "[kubernetes]", mend);
            return false;
        }
    };
    let needed = manifests::definitions().map(|crd| crd.spec.names.plural);
    let missing: Vec<_> = needed.into_iter().filter(|name| !served.contains(name)).collect();
    if missing.is_empty() {
        findings.fine(AREA, "the definitions of the custom resources are there", version);
    } else {
        let what = format!("there is no definition of {}", missing.join(", "));
        findings.wrong(AREA, &what, version, "transponder manifests crds | kubectl apply -f -");
    }
    true
}

/// Whether each account has the rights that its service needs.
async fn accounts(access: &Access, rights: &[Right], findings: &mut Findings) {
    let namespace = access.namespace();
    let mend = format!(
        "transponder manifests rbac --namespace {namespace} | kubectl apply -n {namespace} -f -; where the chart keeps \
         them, its own"
    );
    for of_account in rights.chunk_by(|one, next| one.account == next.account) {
        let Some(Right { account, .. }) = of_account.first() else { continue };
        let at = format!("ServiceAccount {account} in namespace {namespace}");
        let mut lacking = Vec::new();
        for right in of_account {
            match has(access, right).await {
                Ok(true) => {}
                Ok(false) => lacking.push(right.to_string()),
                Err(error) => {
                    let what = format!("whether the accounts have their rights cannot be told: {error}");
                    let mend = "nothing, or run the doctor with the right to create subjectaccessreviews";
                    findings.doubtful(AREA, &what, at, mend);
                    return;
                }
            }
        }
        if lacking.is_empty() {
            findings.fine(AREA, format!("{account} has its rights"), at);
        } else {
            findings.wrong(AREA, &format!("{account} may not {}", lacking.join(", ")), at, &mend);
        }
    }
}

async fn has(access: &Access, right: &Right) -> Result<bool, ApiError> {
    let namespace = access.namespace();
    let groups = ["system:serviceaccounts", "system:authenticated"].map(str::to_owned);
    let of_namespace = format!("system:serviceaccounts:{namespace}");
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{}", right.account)),
            groups: Some(groups.into_iter().chain([of_namespace]).collect()),
            resource_attributes: Some(ResourceAttributes {
                namespace: right.namespaced.then(|| namespace.to_owned()),
                group: Some(right.group.clone()),
                resource: Some(right.resource.clone()),
                subresource: right.subresource.clone(),
                name: right.name.clone(),
                verb: Some(right.verb.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api = Api::<SubjectAccessReview>::all(access.client());
    let create = async { api.create(&PostParams::default(), &review).await };
    let answer = access.call("tell what an account may do", create).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
