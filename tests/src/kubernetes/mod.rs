//! A real Kubernetes control plane without nodes: etcd, kube-apiserver and, on demand, kube-controller-manager.
//!
//! It enforces what a cluster enforces (RBAC, ServiceAccount tokens, admission, quotas, audit) and is up in seconds. What
//! needs a kubelet does not happen: pods stay pending.

mod api_server;
mod audit;
mod client;
mod controller_manager;
mod etcd;
mod kubeconfig;
mod pki;

pub use api_server::{ApiServer, Settings};
pub use audit::AuditEvent;
pub use controller_manager::ControllerManager;
pub use etcd::Durability;
