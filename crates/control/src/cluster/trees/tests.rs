//! Tests of the places of hosts that join, leave and are lost, with trees and without.

use snowmelt_node::file_tree;

use super::*;
use crate::cluster::hosts::fake::FakeHost;

fn hosts(names: &[&str]) -> (HostMap, Vec<Arc<ClusterHost>>) {
    let made: Vec<_> = names.iter().map(|name| FakeHost::default().named(name).1).collect();
    let known = made.iter().map(|host| (host.name.clone(), Arc::clone(host))).collect();
    (known, made)
}

/// Returns the names of the hosts from which a host reads each stripe; `-` for the registry.
fn from(place: &TreePlace) -> String {
    let name = |from: &Upstream| match from {
        Upstream::Host(host) => host.name.clone(),
        Upstream::Control(name) => name.clone(),
        Upstream::Registry => "-".to_owned(),
    };
    place.from.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn parents(places: &[TreePlace]) -> Vec<String> {
    places.iter().map(from).collect()
}

#[test]
fn hosts_get_places_once_and_others_are_told_what_changes() {
    let trees = Trees::default();
    let (mut known, made) = hosts(&["a", "b", "c", "d", "e"]);
    let (places, told) = trees.place_among("image", &known, &made[..3]);
    assert_eq!((parents(&places), told.len()), (vec!["- b".into(), "a -".into(), "a b".into()], 0));
    let (again, _) = trees.place_among("image", &known, &made[..3]);
    assert_eq!(again, places);
    let (places, told) = trees.place_among("image", &known, &made[3..]);
    assert_eq!(parents(&places), ["c b", "a d"]);
    let told: Vec<_> = told.iter().map(|(host, at)| (host.name.as_str(), from(at))).collect();
    assert_eq!(told, [("a", "- d".to_owned()), ("b", "c -".to_owned())]);
    let (other, _) = trees.place_among("another", &known, &made[3..]);
    assert_eq!(parents(&other), ["- e", "d -"]);

    known.remove(&made[1].name);
    // Before it is taken out, nobody is sent to it.
    let (places, _) = trees.place_among("image", &known, &made[3..4]);
    assert_eq!(parents(&places), ["c -"]);
    let moved = trees.without_lost(&known);
    assert!(!moved.is_empty() && moved.iter().all(|(_, place)| place.tree == "image"));
    let left = [&made[..1], &made[2..]].concat();
    let (places, told) = trees.place_among("image", &known, &left);
    assert!(told.is_empty() && parents(&places).iter().all(|parents| !parents.contains('b')));
    for (host, place) in moved {
        let at = left.iter().position(|left| left.name == host.name).unwrap();
        assert_eq!(place, places[at], "they were told where they are");
    }
    assert!(trees.without_lost(&known).is_empty());
    assert!(trees.without_lost(&HostMap::default()).is_empty());
    assert!(trees.lock().by_image.is_empty() && trees.lock().members.is_empty());
}

/// Checks that the second host takes a stripe of which the first host has all blocks already.
#[test]
fn roots_know_each_other() {
    let trees = Trees::default();
    let (known, made) = hosts(&["a", "b", "c"]);
    let beside = |places: &[TreePlace]| -> Vec<String> {
        let name = |place: &TreePlace| match &place.beside {
            Some(Upstream::Host(host)) => host.name.clone(),
            Some(Upstream::Control(name)) => name.clone(),
            _ => "-".to_owned(),
        };
        places.iter().map(name).collect()
    };
    let (places, _) = trees.place_among("image", &known, &made[..1]);
    assert_eq!(beside(&places), ["-"]);
    let (places, told) = trees.place_among("image", &known, &made[1..]);
    assert_eq!(
        (parents(&places), beside(&places)),
        (vec!["a -".into(), "a b".into()], vec!["a".into(), "-".into()])
    );
    let [(host, place)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (&host.name, beside(std::slice::from_ref(place))),
        (&made[0].name, vec!["b".into()])
    );
    let alone = Trees::new(false);
    let (places, _) = alone.place_among("image", &known, &made);
    assert_eq!(beside(&places), ["-", "-", "-"]);
}

#[test]
fn a_host_leaves_unless_it_was_placed_meanwhile() {
    let trees = Trees::default();
    let (known, made) = hosts(&["a", "b", "c"]);
    let image = Digest::of("image");
    let b = &made[1].name;
    trees.place_among("image", &known, &made);
    trees.place_among("another", &known, &made);
    let placed = || {
        let mut placed = Vec::new();
        trees.roles(|image, host, role| {
            if role.is_used {
                placed.push(format!("{image} {host}"));
            }
        });
        placed
    };
    // It is not known yet what has begun there.
    assert!(trees.without(&image, b, &known).is_empty());
    assert_eq!(placed().len(), 6);
    assert!(placed().is_empty(), "each is said once");
    let told = trees.without(&image, b, &known);
    assert!(!told.is_empty() && told.iter().all(|(_, place)| place.tree == "image"));
    assert!(told.iter().all(|(host, place)| host.name != *b && !from(place).contains('b')));
    assert!(trees.without(&image, b, &known).is_empty());
    assert!(trees.without(&Digest::of("unknown"), b, &known).is_empty());
    let left: Vec<_> = trees.lock().by_image["image"].hosts.all().cloned().collect();
    assert_eq!(left, [made[0].name.clone(), made[2].name.clone()]);
    assert!(trees.lock().by_image["another"].hosts.all().any(|host| host == b));
    for host in [&made[0].name, &made[2].name] {
        trees.without(&image, host, &known);
    }
    assert!(!trees.lock().by_image.contains_key("image"));
    trees.place_among("image", &known, &made[1..2]);
    assert_eq!(placed(), [format!("image {b}")]);
}

#[test]
fn the_trees_that_were_used_longest_ago_are_forgotten() {
    let trees = Trees::default();
    let (known, made) = hosts(&["a"]);
    for image in 0..MAX_TREES {
        trees.place_among(&image.to_string(), &known, &made);
    }
    trees.place_among("0", &known, &made);
    trees.place_among("one more", &known, &made);
    let left = &trees.lock().by_image;
    assert_eq!(left.len(), MAX_TREES);
    assert!(left.contains_key("0") && !left.contains_key("1"));
}

#[test]
fn without_trees_each_host_reads_images_by_itself_and_files_from_others() {
    let trees = Trees::new(false);
    assert!(!trees.are_of_images() && Trees::new(true).are_of_images());
    let (mut known, made) = hosts(&["a", "b", "c"]);
    let (places, told) = trees.place_among("image", &known, &made[..2]);
    assert_eq!((parents(&places), told.len()), (vec!["-".to_owned(), "-".to_owned()], 0));
    let (places, told) = trees.place_among("image", &known, &made[1..]);
    assert_eq!((parents(&places), told.len()), (vec!["-".to_owned(), "-".to_owned()], 0));
    let file = file_tree(&"0".repeat(64));
    let (places, _) = trees.place_among(&file, &known, &made);
    assert_eq!(parents(&places), ["- b", "a -", "a b"]);

    // Calls still prefer hosts that hold the image.
    let mut holding = Vec::new();
    trees.roles(|image, host, role| {
        if image == "image" {
            holding.push((host.to_string(), role.depth, role.is_inner, role.is_used));
        }
    });
    let held = |host: &str| (host.to_owned(), 0, false, true);
    assert_eq!(holding, ["a", "b", "c"].map(held));

    let image = Digest::of("image");
    assert!(trees.without(&image, &made[1].name, &known).is_empty());
    known.remove(&made[0].name);
    let told = trees.without_lost(&known);
    assert!(!told.is_empty() && told.iter().all(|(_, place)| place.tree == file));
    let left: Vec<_> = trees.lock().by_image["image"].hosts.all().cloned().collect();
    assert_eq!(left, [made[2].name.clone()]);
    trees.without(&image, &made[2].name, &known);
    assert!(!trees.lock().by_image.contains_key("image"));
}
