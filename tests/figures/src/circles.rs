//! Strongly connected components of the graph of imports (Tarjan).

use std::collections::BTreeMap;

use crate::imports::Graph;

/// Files that can be reached from each other, with what each imports of the others.
pub type Circle = BTreeMap<String, Vec<String>>;

/// The circles of more than one file, the largest first.
pub(crate) fn of(graph: &Graph) -> Vec<Circle> {
    let mut search =
        Search { graph, numbers: BTreeMap::new(), open: Vec::new(), found: Vec::new() };
    for file in graph.keys() {
        if !search.numbers.contains_key(file.as_str()) {
            search.visit(file);
        }
    }
    let within = |circle: Vec<&str>| -> Circle {
        let others = |file: &str| {
            let imported = graph[file].iter().filter(|to| circle.contains(&to.as_str()));
            (file.to_owned(), imported.cloned().collect())
        };
        circle.iter().map(|file| others(file)).collect()
    };
    let mut found: Vec<_> = search.found.into_iter().map(within).collect();
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

struct Search<'g> {
    graph: &'g Graph,
    /// In the order in which they were met.
    numbers: BTreeMap<&'g str, usize>,
    /// Those whose component is not complete.
    open: Vec<&'g str>,
    found: Vec<Vec<&'g str>>,
}

impl<'g> Search<'g> {
    /// The lowest number that can be reached from a file.
    fn visit(&mut self, file: &'g str) -> usize {
        let number = self.numbers.len();
        self.numbers.insert(file, number);
        self.open.push(file);
        let mut lowest = number;
        for to in self.graph.get(file).into_iter().flatten() {
            lowest = lowest.min(match self.numbers.get(to.as_str()) {
                None => self.visit(to),
                Some(number) if self.open.contains(&to.as_str()) => *number,
                Some(_) => lowest,
            });
        }
        if lowest == number {
            let from = self.open.iter().position(|open| *open == file).unwrap_or_default();
            let circle: Vec<_> = self.open.drain(from..).collect();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_told_from_what_only_leads_to_them() {
        let edges =
            [("a", "b"), ("b", "c"), ("c", "a"), ("x", "a"), ("c", "y"), ("d", "e"), ("e", "d")];
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
        let found = of(&graph);
        let names: Vec<Vec<_>> = found.iter().map(|circle| circle.keys().collect()).collect();
        assert_eq!(names, [vec!["a", "b", "c"], vec!["d", "e"]]);
        assert_eq!(found[0]["c"], ["a"]);
    }
}
