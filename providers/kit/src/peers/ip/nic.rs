//! The device of a network interface, as the kernel describes it below `/sys/class/net`.

use std::fs;
use std::path::Path;

use selvedge::info::{Nic, PciAddress};

use super::interface::Interface;

/// The directory of the interfaces.
const ROOT: &str = "/sys/class/net";

/// Describes the device of an interface that is up. `None` for an interface without a device, such
/// as the loopback, a bridge, or one end of a pair of virtual interfaces.
pub(super) fn describe(interface: &Interface) -> Option<Nic> {
    let mut nic = describe_in(Path::new(ROOT), &interface.name)?;
    nic.up = true;
    nic.speed = interface.speed * 1_000_000;
    Some(nic)
}

fn describe_in(root: &Path, name: &str) -> Option<Nic> {
    let link = root.join(name);
    let device = link.join("device").canonicalize().ok()?;
    let read = |directory: &Path, file: &str| {
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.trim().to_owned()
    };
    let mut nic = Nic::default();
    nic.name = name.to_owned();
    nic.device_id = read(&device, "device");
    nic.device_version = read(&device, "revision");
    nic.vendor_id = read(&device, "vendor");
    let driver = device.join("driver").canonicalize().unwrap_or_default();
    nic.driver = driver
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into();
    nic.address = read(&link, "address");
    nic.mtu = read(&link, "mtu").parse().unwrap_or(0);
    nic.network_type = network_type(&read(&link, "type")).to_owned();
    // A device may lie on another bus below its PCI device, as those of virtio do.
    let pci = device.ancestors().find_map(|device| {
        let address = PciAddress::parse(device.file_name()?.to_str()?)?;
        Some((device, address))
    });
    if let Some((device, address)) = pci {
        nic.pci = Some(address);
        // The kernel states -1 if the firmware names no node.
        nic.numa_node = read(device, "numa_node").parse().ok();
    }
    Some(nic)
}

/// Returns the name of a type of link (`ARPHRD_*`); empty for a type that libfabric does not name.
fn network_type(number: &str) -> &'static str {
    match number {
        "1" => "Ethernet",
        "32" => "InfiniBand",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// Directories of the kernel: `eth7` is a PCI device, `ib0` lies on another bus below one,
    /// `br0` has no device, and `usb0` has a device on no PCI bus.
    struct Tree(PathBuf);

    impl Tree {
        fn new() -> Self {
            let root = std::env::temp_dir().join(format!("nic-{}", std::process::id()));
            let tree = Self(root);
            let card = "devices/pci0000:3a/0000:3a:00.0/0001:3b:1f.1";
            let other = "devices/pci0000:3a/0000:3a:02.0/virtio0";
            tree.write(&format!("{card}/vendor"), "0x15b3\n");
            tree.write(&format!("{card}/device"), "0x101b\n");
            tree.write(&format!("{card}/revision"), "0x02\n");
            tree.write(&format!("{card}/numa_node"), "1\n");
            tree.write(&format!("{other}/vendor"), "0x1af4\n");
            tree.write("devices/pci0000:3a/0000:3a:02.0/numa_node", "-1\n");
            tree.write("devices/usb/vendor", "0x1\n");
            tree.write("drivers/mlx5_core/x", "");
            symlink(
                tree.0.join("drivers/mlx5_core"),
                tree.0.join(card).join("driver"),
            )
            .unwrap();
            for (name, device, kind) in [
                ("eth7", Some(card), "1"),
                ("ib0", Some(other), "32"),
                ("br0", None, "1"),
                ("usb0", Some("devices/usb"), "65534"),
            ] {
                tree.write(&format!("net/{name}/type"), kind);
                tree.write(&format!("net/{name}/mtu"), "9000\n");
                tree.write(&format!("net/{name}/address"), "02:00:00:00:00:01\n");
                if let Some(device) = device {
                    let link = tree.0.join("net").join(name).join("device");
                    symlink(tree.0.join(device), link).unwrap();
                }
            }
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn an_interface_has_the_attributes_and_the_bus_address_of_its_device() {
        let tree = Tree::new();
        let describe = |name| describe_in(&tree.0.join("net"), name);
        let eth = describe("eth7").unwrap();
        assert_eq!((&*eth.name, &*eth.driver), ("eth7", "mlx5_core"));
        assert_eq!((&*eth.vendor_id, &*eth.device_id), ("0x15b3", "0x101b"));
        assert_eq!((&*eth.device_version, &*eth.firmware), ("0x02", ""));
        assert_eq!((eth.mtu, &*eth.address), (9000, "02:00:00:00:00:01"));
        assert_eq!((&*eth.network_type, eth.numa_node), ("Ethernet", Some(1)));
        let pci = eth.pci.unwrap();
        assert_eq!((pci.domain_id, pci.bus_id), (1, 0x3b));
        assert_eq!((pci.device_id, pci.function_id), (0x1f, 1));
        let ib = describe("ib0").unwrap();
        assert_eq!((ib.pci.unwrap().device_id, ib.numa_node), (2, None));
        assert_eq!((&*ib.network_type, &*ib.driver), ("InfiniBand", ""));
        let usb = describe("usb0").unwrap();
        assert_eq!((usb.pci, &*usb.network_type), (None, ""));
        assert_eq!(describe("br0"), None);
        assert_eq!(describe("absent"), None);
    }

    #[test]
    fn the_loopback_has_no_device() {
        assert_eq!(describe_in(Path::new(ROOT), "lo"), None);
    }
}
