//! The harness: starts any part of a release's way on free loopback ports, and waits for conditions, never for time.
//!
//! * [`Mesh`] is the product as an operator runs it, and [`TestEvent`] what a hook sends it;
//! * [`Fleet`] is several replicas of each on a Kubernetes API, each with the rights of its ServiceAccount;
//! * [`Apart`] is the same as a process per service, and [`Replica`] one of several processes of a service;
//! * [`Process`] runs a program with its logs captured and shows them when the test fails;
//! * [`Broker`] and [`OtlpReceiver`] stand where a broker and a tracing backend stand, and misbehave on demand;
//! * [`Jaeger`], [`Tempo`] and [`Prometheus`] are the real ones; [`curl`], [`GrpcCall`] and [`Run`] call real clients;
//! * [`kubernetes::ApiServer`] is a real control plane, whose programs can be killed and started again;
//! * [`eventually`] waits, and says what it saw last when it waited in vain.
//!
//! Everything here reports trouble by panicking in the test that asked: a test has no use for an error it would only
//! unwrap. Nothing is left behind: what is started ends when its handle is dropped, by its process id.

mod alone;
mod apart;
mod balancer;
mod broker;
mod certificates;
mod event;
mod eventually;
mod fake_clock;
mod fleet;
mod grpc;
mod jaeger;
pub mod kubernetes;
mod line;
mod load;
mod locate;
mod mesh;
mod otlp;
mod outcomes;
pub mod ports;
mod process;
mod prometheus;
mod replica;
mod run;
mod server;
mod tempo;
pub mod usage;
mod wire;

pub use alone::alone;
pub use apart::Apart;
pub use balancer::Balancer;
pub use broker::{Answer, Behaviour, Broker, Received};
pub use certificates::Authority;
pub use event::TestEvent;
pub use eventually::{LONG, SHORT, eventually};
pub use fake_clock::FakeClock;
pub use fleet::{Fleet, NAMESPACE, Poster};
pub use grpc::{Code, GrpcCall, details};
pub use jaeger::Jaeger;
pub use line::Line;
pub use load::{Load, LoadReport};
pub use locate::{product, tool};
pub use mesh::{ALL_DELIVERED, Mesh, sum_of};
pub use otlp::{Export, OtlpReceiver, OtlpReply, Protocol, ReceivedSpan};
pub use process::Process;
pub use prometheus::{Prometheus, Sample, Target};
pub use replica::Replica;
pub use run::{HttpResponse, Ran, Run, curl, grpcurl, grpcurl_v1alpha, http};
pub use tempo::Tempo;
pub use wire::Wire;
