//! Who is who on Kubernetes: Tasks by TokenReview, clusters by ConfigMap and Secrets, each service with its own account.

#[path = "kubernetes_access/callers.rs"]
mod callers;
#[path = "kubernetes_access/ground.rs"]
mod ground;
#[path = "kubernetes_access/operator.rs"]
mod operator;
#[path = "kubernetes_access/registry.rs"]
mod registry;
#[path = "kubernetes_access/token.rs"]
mod token;
