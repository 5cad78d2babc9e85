//! Who calls a gRPC method, and who may.

use std::fmt;

use crate::AppNamespace;

/// The parts of Transponder that have an identity of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServiceName {
    /// The edge.
    Edge,
    /// Forwarder.
    Forwarder,
    /// DoraRecorder.
    DoraRecorder,
    /// ReleaseTracking.
    ReleaseTracking,
    /// OutcomeSpan.
    OutcomeSpan,
}

impl ServiceName {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Edge, Self::Forwarder, Self::DoraRecorder, Self::ReleaseTracking, Self::OutcomeSpan];

    /// The name as it stands in certificates, commands, file names and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Forwarder => "forwarder",
            Self::DoraRecorder => "dora-recorder",
            Self::ReleaseTracking => "release-tracking",
            Self::OutcomeSpan => "outcome-span",
        }
    }

    /// The URI SAN of the service's certificate.
    #[must_use]
    pub fn spiffe_id(self, trust_domain: &str) -> String {
        format!("spiffe://{trust_domain}/transponder/{self}")
    }

    /// Reads the URI SAN of a certificate.
    #[must_use]
    pub fn from_spiffe_id(uri: &str, trust_domain: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.spiffe_id(trust_domain) == uri)
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A part of Transponder, by client certificate.
    Service(ServiceName),
    /// A Tekton Task of an application, by ServiceAccount token. It acts on its own app namespace alone.
    App {
        /// The account's namespace.
        namespace: AppNamespace,
        /// `<namespace>/<name>` of the account, for logs.
        account: String,
    },
    /// A Task of the platform, by ServiceAccount token.
    Platform {
        /// `<namespace>/<name>` of the account, for logs.
        account: String,
    },
}

impl Caller {
    /// The app namespace that the caller is held to; `None` when it may act on any.
    #[must_use]
    pub fn app_namespace(&self) -> Option<&AppNamespace> {
        match self {
            Self::App { namespace, .. } => Some(namespace),
            Self::Service(_) | Self::Platform { .. } => None,
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(service) => write!(f, "{service}"),
            Self::App { account, .. } | Self::Platform { account } => f.write_str(account),
        }
    }
}

/// Who made what is stored: that tells whose room it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// The edge, or a Task of the platform: the cluster that it names is the one that reported.
    Platform,
    /// A Task of the app, which may name any cluster.
    App,
}

impl Maker {
    /// Who makes something by this caller's call.
    #[must_use]
    pub fn of(caller: &Caller) -> Self {
        match caller {
            Caller::Service(_) | Caller::Platform { .. } => Self::Platform,
            Caller::App { .. } => Self::App,
        }
    }
}

/// The methods that a caller is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `Forwarder.Forward`
    Forward,
    /// `DoraRecorder.RecordOutcome`
    RecordOutcome,
    /// `DoraRecorder.Expect`
    Expect,
    /// `ReleaseTracking.Put`
    Put,
    /// `ReleaseTracking.Observe`
    Observe,
    /// `ReleaseTracking.Resolve`
    Resolve,
    /// `ReleaseTracking.List`
    List,
    /// `ReleaseTracking.Delete`
    Delete,
    /// `OutcomeSpan.Emit`
    Emit,
}

impl Method {
    /// Whether the caller may call the method at all; what it may touch there is the service's to check.
    /// The same table stands in the comments of the proto services.
    #[must_use]
    pub fn allows(self, caller: &Caller) -> bool {
        match caller {
            Caller::Service(ServiceName::Edge) => {
                matches!(self, Self::Forward | Self::RecordOutcome | Self::Observe | Self::Emit)
            }
            Caller::Service(ServiceName::OutcomeSpan) => self == Self::Resolve,
            Caller::Service(_) => false,
            Caller::App { .. } | Caller::Platform { .. } => !matches!(self, Self::Forward | Self::Observe),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spiffe_id_names_one_service_of_one_trust_domain() {
        for service in ServiceName::ALL {
            assert_eq!(ServiceName::from_spiffe_id(&service.spiffe_id("a.b"), "a.b"), Some(service));
            assert_eq!(ServiceName::from_spiffe_id(&service.spiffe_id("a.b"), "a.c"), None);
        }
        for bad in ["spiffe://a.b/transponder/edge/x", "spiffe://a.b/transponder/", "spiffe://a.b/other/edge"]
        {
            assert_eq!(ServiceName::from_spiffe_id(bad, "a.b"), None, "{bad}");
        }
    }

    #[test]
    fn only_the_edge_may_forward_and_observe() {
        let callers = ServiceName::ALL.map(Caller::Service).into_iter().chain([
            Caller::Platform { account: "platform-system/x".into() },
            Caller::App {
                namespace: AppNamespace::new("app-a-cicd").unwrap(),
                account: "app-a-cicd/x".into(),
            },
        ]);
        for caller in callers {
            let edge = caller == Caller::Service(ServiceName::Edge);
            assert_eq!(Method::Forward.allows(&caller), edge, "{caller}");
            assert_eq!(Method::Observe.allows(&caller), edge, "{caller}");
        }
    }
}
