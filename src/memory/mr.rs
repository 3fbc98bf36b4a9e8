//! Memory registration: fi_mr(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bitflags::bitflags;

use crate::{Counter, Desc, Errno, Error, MrAccess};

/// Attributes of a memory registration (`struct fi_mr_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// Access rights.
    pub access: MrAccess,
    /// The requested key, where the application chooses keys. The key of a region without remote
    /// rights is ignored, and does not collide with other keys.
    pub requested_key: u64,
    /// The offset at which remote accesses start.
    pub offset: u64,
    /// The interface of the device whose memory is registered. A provider that did not report
    /// [`crate::Caps::HMEM`] refuses other memory than the system's.
    pub iface: HmemIface,
    /// The number of the device, in the form of its interface. Ignored for memory of the system.
    pub device: u64,
    /// How the memory of a device was allocated.
    pub flags: Flags,
}

bitflags! {
    /// How the memory of a device was allocated (fi_mr(3)).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u64 {
        /// The device's library has allocated memory of the system, which the processor accesses
        /// like any other (`FI_HMEM_HOST_ALLOC`).
        const HMEM_HOST_ALLOC = 1 << 45;
        /// Only the device can access the memory (`FI_HMEM_DEVICE_ONLY`).
        const HMEM_DEVICE_ONLY = 1 << 46;
    }
}

/// An interface to the memory of devices (`enum fi_hmem_iface`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum HmemIface {
    /// Memory of the system (`FI_HMEM_SYSTEM`).
    #[default]
    System = 0,
    /// CUDA, for devices of NVIDIA (`FI_HMEM_CUDA`).
    Cuda = 1,
    /// ROCr, for devices of AMD (`FI_HMEM_ROCR`).
    Rocr = 2,
    /// Level Zero, for devices of Intel (`FI_HMEM_ZE`).
    Ze = 3,
    /// Neuron, for devices of AWS (`FI_HMEM_NEURON`).
    Neuron = 4,
    /// SynapseAI, for devices of Habana (`FI_HMEM_SYNAPSEAI`).
    Synapseai = 5,
}

impl HmemIface {
    /// Every interface, in the order of libfabric's numbers.
    pub const ALL: &[Self] = &[
        Self::System,
        Self::Cuda,
        Self::Rocr,
        Self::Ze,
        Self::Neuron,
        Self::Synapseai,
    ];

    /// Returns libfabric's name.
    pub const fn text(self) -> &'static str {
        match self {
            Self::System => "FI_HMEM_SYSTEM",
            Self::Cuda => "FI_HMEM_CUDA",
            Self::Rocr => "FI_HMEM_ROCR",
            Self::Ze => "FI_HMEM_ZE",
            Self::Neuron => "FI_HMEM_NEURON",
            Self::Synapseai => "FI_HMEM_SYNAPSEAI",
        }
    }
}

impl Attr {
    /// Checks that the memory is the system's, for a provider `provider` that copies with the
    /// processor.
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] with the interface and the device.
    pub fn check_system_memory(&self, provider: &str) -> Result<(), Error> {
        if self.iface == HmemIface::System {
            return Ok(());
        }
        let (iface, device) = (self.iface.text(), self.device);
        let text = format!(
            "cannot register {iface} memory of device {device}: {provider} copies with the \
             processor and reports no FI_HMEM: copy the bytes to memory of the system, or use a \
             provider of ofi that reports FI_HMEM"
        );
        Err(Error::new(Errno::OpNotSupp, text))
    }
}

/// Registered memory. Dropping the last handle revokes all rights.
pub trait MemoryRegion: Any + fmt::Debug + Send + Sync {
    /// Returns the key with which peers access the region (fi_mr_key(3)).
    fn key(&self) -> u64;
    /// Returns the descriptor for local operations (fi_mr_desc(3)).
    fn desc(&self) -> Desc;

    /// Binds a counter that counts accesses of peers to the region until the region is dropped
    /// (fi_mr_bind(3)). [`MrAccess::REMOTE_WRITE`] counts writes and atomics that change the
    /// region, and [`MrAccess::REMOTE_READ`] counts reads and atomics that return earlier values.
    /// An operation counts once, also if several of its segments are in the region, or both bits
    /// apply to the operation.
    ///
    /// Reading the counter drives progress of every endpoint of the domain.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no such counters. [`Errno::Inval`] for other bits, for an
    /// event that already has a counter, for a counter of another provider, and for a region
    /// without remote rights.
    fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        let _ = (cntr, events);
        let text =
            format!("cannot bind a counter to {self:?}: the provider has no counters of regions");
        Err(Error::new(Errno::NoSys, text))
    }
}
