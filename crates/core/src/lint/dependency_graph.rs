//! Finds cycles among issues that depend on each other.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the first cycle, starting and ending with the same issue, or `None` if the issues can be ordered.
pub fn dependency_cycle(graph: &BTreeMap<u64, Vec<u64>>) -> Option<Vec<u64>> {
    let mut finished = BTreeSet::new();
    for root in graph.keys() {
        // The path holds each open issue with the position in its list. It is an explicit stack because a chain may be
        // long.
        let mut path: Vec<(u64, usize)> = vec![(*root, 0)];
        let mut open = BTreeSet::from([*root]);
        while let Some((issue, at)) = path.last_mut() {
            if finished.contains(issue) {
                open.remove(issue);
                path.pop();
                continue;
            }
            let next = graph.get(issue).and_then(|waits| waits.get(*at)).copied();
            *at += 1;
            match next {
                None => {
                    finished.insert(*issue);
                }
                Some(next) if open.contains(&next) => {
                    let from = path.iter().position(|(issue, _)| *issue == next).unwrap_or(0);
                    let mut cycle: Vec<u64> = path.iter().skip(from).map(|(issue, _)| *issue).collect();
                    cycle.push(next);
                    return Some(cycle);
                }
                Some(next) => {
                    if !finished.contains(&next) {
                        open.insert(next);
                        path.push((next, 0));
                    }
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(edges: &[(u64, &[u64])], want: Option<&[u64]>) {
        let graph = edges.iter().map(|(issue, waits)| (*issue, waits.to_vec())).collect();
        assert_eq!(dependency_cycle(&graph).as_deref(), want, "{edges:?}");
    }

    #[test]
    fn cycles() {
        check(&[], None);
        check(&[(1, &[2, 3]), (2, &[3]), (3, &[4])], None);
        check(&[(1, &[1])], Some(&[1, 1]));
        check(&[(1, &[2]), (2, &[3]), (3, &[2])], Some(&[2, 3, 2]));
        check(&[(1, &[4]), (2, &[1]), (4, &[5, 2])], Some(&[1, 4, 2, 1]));
    }

    #[test]
    fn long_chains_do_not_overflow_the_stack() {
        let mut graph: BTreeMap<u64, Vec<u64>> = (0..100_000).map(|n| (n, vec![n + 1])).collect();
        assert_eq!(dependency_cycle(&graph), None);
        graph.insert(100_000, vec![0]);
        assert_eq!(dependency_cycle(&graph).map(|cycle| cycle.len()), Some(100_002));
    }
}
