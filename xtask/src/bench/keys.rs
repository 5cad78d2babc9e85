//! What is measured, and what it must reach.

use std::fmt;

/// Keys that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Accept,
    Chain,
    Memory,
    Clusters,
    Hook,
    Times,
    OnKubernetes(Part),
}

/// What is measured together on a Kubernetes API, on an API server of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Accept,
    Requests,
    Idle1000,
    Memory,
}

impl Part {
    /// What the program that measures calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Requests => "requests",
            Self::Idle1000 => "idle-1000",
            Self::Memory => "memory",
        }
    }
}

impl Group {
    pub(super) const EMBEDDED: [Self; 6] =
        [Self::Accept, Self::Chain, Self::Memory, Self::Clusters, Self::Hook, Self::Times];
    pub(super) const KUBERNETES: [Self; 4] = [
        Self::OnKubernetes(Part::Accept),
        Self::OnKubernetes(Part::Requests),
        Self::OnKubernetes(Part::Idle1000),
        Self::OnKubernetes(Part::Memory),
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Accept => "accepting, beside an empty handler and the bare disk",
            Self::Chain => "a whole delivery, beside the bare chain of its calls",
            Self::Memory => "memory, and 100 000 records beside ten",
            Self::Clusters => "ten thousand clusters beside ten",
            Self::Hook => "the hook, beside one written for a shell",
            Self::Times => "from post to span, and from start to ready",
            Self::OnKubernetes(Part::Accept) => "accepting on Kubernetes, beside a bare client",
            Self::OnKubernetes(Part::Requests) => {
                "requests while idle and for an event, and what is stored of it"
            }
            Self::OnKubernetes(Part::Idle1000) => "requests while idle with 1 000 clusters",
            Self::OnKubernetes(Part::Memory) => {
                "memory with 10 000 outcomes and records, and deliveries a second"
            }
        }
    }
}

/// What a value must reach.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing: an aim.
    Aim(f64),
}

impl Target {
    pub(super) fn reached(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(bound) => Some(value >= bound),
            Self::AtMost(bound) => Some(value <= bound),
            Self::Aim(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
            Self::Aim(bound) => write!(f, "aim {bound}"),
        }
    }
}

/// One number that comes out.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) group: Group,
    pub(super) target: Target,
}

const fn key(name: &'static str, group: Group, target: Target) -> Key {
    Key { name, group, target }
}

pub(super) const KEYS: &[Key] = &[
    key("accept_over_limit", Group::Accept, Target::AtLeast(0.6)),
    key("accept_p99_fsyncs", Group::Accept, Target::AtMost(3.0)),
    key("cpu_over_bare_chain", Group::Chain, Target::AtMost(2.0)),
    key("rss_idle_mib", Group::Memory, Target::AtMost(30.0)),
    key("rss_loaded_mib", Group::Memory, Target::AtMost(60.0)),
    key("rss_growth_mib", Group::Memory, Target::AtMost(2.0)),
    key("clusters_cost", Group::Clusters, Target::AtMost(1.2)),
    key("records_cost", Group::Memory, Target::AtMost(1.2)),
    key("hook_over_shell", Group::Hook, Target::AtMost(0.1)),
    key("hook_bytes", Group::Hook, Target::AtMost(4_000_000.0)),
    key("span_ms", Group::Times, Target::Aim(50.0)),
    key("start_ms", Group::Times, Target::Aim(300.0)),
    key("k8s_accept_over_create", Group::OnKubernetes(Part::Accept), Target::AtLeast(0.9)),
    key("k8s_accept_p99_over_create_p99", Group::OnKubernetes(Part::Accept), Target::AtMost(1.3)),
    key("k8s_requests_per_event", Group::OnKubernetes(Part::Requests), Target::AtMost(7.0)),
    key("k8s_idle_requests_per_min", Group::OnKubernetes(Part::Requests), Target::AtMost(60.0)),
    key("k8s_idle_requests_per_min_1000", Group::OnKubernetes(Part::Idle1000), Target::AtMost(80.0)),
    key("k8s_rss_mib", Group::OnKubernetes(Part::Memory), Target::AtMost(40.0)),
    key("k8s_object_bytes", Group::OnKubernetes(Part::Requests), Target::AtMost(3.0)),
];
