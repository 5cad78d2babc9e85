//! Configuration: section `[forwarder]`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use transponder_runtime::config::duration;

/// How the Forwarder reaches the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address of the gRPC listener.
    pub listen: SocketAddr,
    /// URL that events are posted to, http or https. Its path is used as it is.
    pub broker_url: String,
    /// The projected ServiceAccount token, read anew for each event. Empty: no token is sent (a broker on a laptop).
    pub token_file: PathBuf,
    /// Audience that the token must carry. Empty: any, and a token that is no JWT is taken, with a warning.
    pub audience: String,
    /// CA certificates of an https broker, watched. Absent: the system's roots.
    pub ca_file: Option<PathBuf>,
    /// Longest time for one post, connecting included.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8444)),
            broker_url: "http://el-cdevents-broker.platform-system:8080".into(),
            token_file: "/var/run/secrets/platform/broker-token".into(),
            audience: "cdevents-broker".into(),
            ca_file: None,
            timeout: Duration::from_secs(10),
        }
    }
}
