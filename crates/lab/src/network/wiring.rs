//! The bridge, and the namespaces and links of new members.

use std::os::fd::AsFd;

use snowmelt_network::netlink::Batch;

use super::device::{self, ETH0, port};
use super::shape;
use crate::lab::{BRIDGE, Lab};
use crate::members::{LabMember, LabProgram, Machine, PREFIX, disk};
use crate::namespace::{self, Namespace};
use crate::parameters::LabLink;
use crate::{Error, Result};

/// Creates the bridge in a namespace of its own.
pub(crate) fn add_bridge(lab: &Lab) -> Result<Namespace> {
    let mut made = namespace::make(vec![lab.folder.namespace(BRIDGE)])?;
    let mut bridge = made.pop().ok_or(Error::Root)?;
    let mut batch = Batch::new();
    device::add_bridge(&mut batch);
    bridge.route.run(batch)?;
    Ok(bridge)
}

/// Creates namespaces and links of new members, configures and shapes them, and starts the programs
/// of those members that are to start.
pub(crate) fn connect(
    bridge: &mut Namespace,
    before: &[LabMember],
    new: &[LabMember],
    starts: impl Fn(&LabMember) -> bool,
    program: &impl LabProgram,
) -> Result<()> {
    let files = new.iter().map(|member| member.machine().namespace.clone()).collect();
    let mut namespaces = namespace::make(files)?;
    let mut batch = Batch::new();
    for (member, namespace) in new.iter().zip(&namespaces) {
        let Machine { number, name, .. } = member.machine();
        device::add_link(&mut batch, *number, name, namespace.as_fd());
    }
    bridge.route.run(batch)?;
    for (member, namespace) in new.iter().zip(&mut namespaces) {
        let machine = member.machine();
        let mut batch = Batch::new();
        device::configure(&mut batch, machine.ip(), PREFIX);
        namespace.route.run(batch)?;
        set_shape(bridge, namespace, machine.number, machine.link)?;
    }
    add_neighbours(before, new, &mut namespaces)?;
    for (member, namespace) in new.iter().zip(&namespaces) {
        member.host().map_or(Ok(()), disk::add)?;
        if starts(member) {
            member.start(namespace, program)?;
        }
    }
    Ok(())
}

/// Shapes both ends of a link.
pub(crate) fn set_shape(
    bridge: &mut Namespace,
    namespace: &mut Namespace,
    number: u32,
    link: LabLink,
) -> Result<()> {
    shape::add(&mut namespace.route, ETH0, link)?;
    shape::add(&mut bridge.route, port(number), LabLink { delay: None, ..link })
}

/// Adds neighbour entries of all members to new ones, and entries of the new members to earlier
/// ones.
fn add_neighbours(
    before: &[LabMember],
    new: &[LabMember],
    namespaces: &mut [Namespace],
) -> Result<()> {
    let before: Vec<&Machine> = before.iter().map(LabMember::machine).collect();
    let new: Vec<&Machine> = new.iter().map(LabMember::machine).collect();
    for (machine, namespace) in new.iter().zip(namespaces) {
        let others = before.iter().chain(&new).filter(|other| other.number != machine.number);
        let mut batch = Batch::new();
        device::add_neighbours(&mut batch, others.copied());
        namespace.route.run(batch)?;
    }
    for machine in before {
        let mut batch = Batch::new();
        device::add_neighbours(&mut batch, new.iter().copied());
        namespace::open(&machine.namespace)?.route.run(batch)?;
    }
    Ok(())
}
