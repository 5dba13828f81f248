//! Results that a guest pushed before it was asked for them, kept as answers to that question.

use std::collections::VecDeque;

use hivekeep_protocol::{TaskResultsPush, TaskResultsReply};

/// Most results kept; the guest is asked for others. Each fits an event of the link.
const MOST: usize = 8;

/// Results that one guest pushed over its present link.
#[derive(Debug, Default)]
pub(crate) struct ResultCache(VecDeque<TaskResultsPush>);

impl ResultCache {
    /// Keeps a push of one new result; any other push is only a hint.
    pub(crate) fn keep(&mut self, news: TaskResultsPush) {
        let [result] = &news.page.results[..] else { return };
        let last = self.0.back().map_or(0, number);
        if news.page.more || result.number <= news.after || result.number <= last {
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(news);
    }

    /// The guest's answer to a question for at most `limit` results after number `after`, as far as it was
    /// pushed; `None` when the guest has to be asked.
    pub(crate) fn answer(&self, after: u64, limit: u32) -> Option<TaskResultsReply> {
        let mut page: Option<TaskResultsReply> = None;
        let mut known = after;
        for news in self.0.iter().filter(|news| number(news) > after) {
            if news.after > known {
                break;
            }
            let so_far = page.as_ref().map_or(0, |page| page.results.len());
            if so_far >= limit as usize {
                page.as_mut()?.more = true;
                break;
            }
            known = number(news);
            let mut longer = news.page.clone();
            if let Some(shorter) = page {
                longer.results.splice(0..0, shorter.results);
            }
            page = Some(longer);
        }
        page
    }

    /// Drops results that are durable here: the guest is about to learn that, and reports them no more.
    pub(crate) fn acknowledged(&mut self, task_ids: &[String]) {
        let named = |news: &TaskResultsPush| {
            news.page.results.iter().any(|result| task_ids.contains(&result.task_id))
        };
        self.0.retain(|news| !named(news));
    }

    /// Drops all results: the guest behind the next link may have gone back to an earlier state.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

fn number(news: &TaskResultsPush) -> u64 {
    news.page.results.last().map_or(0, |result| result.number)
}

#[cfg(test)]
mod tests {
    use hivekeep_protocol::{Exit, GuestTaskOutcome, GuestTaskResult, TaskStreamOutput};
    use proptest::prelude::*;

    use super::*;

    fn result(number: u64) -> GuestTaskResult {
        GuestTaskResult {
            number,
            task_id: format!("t{number}"),
            message_id: "m".into(),
            outcome: GuestTaskOutcome::Ended(Exit::Code(0)),
            workdir: None,
            stdout: TaskStreamOutput::default(),
            stderr: TaskStreamOutput::default(),
            elapsed_ms: 1,
        }
    }

    fn news(after: u64, number: u64) -> TaskResultsPush {
        let page = TaskResultsReply {
            results: vec![result(number)],
            more: false,
            queued: 0,
            running: number as u32,
        };
        TaskResultsPush { after, page }
    }

    fn numbers(page: Option<TaskResultsReply>) -> Option<(Vec<u64>, bool)> {
        page.map(|page| (page.results.iter().map(|it| it.number).collect(), page.more))
    }

    #[test]
    fn what_follows_one_another_is_one_answer_and_a_gap_is_asked_for() {
        let mut cache = ResultCache::default();
        assert_eq!(cache.answer(0, 20), None);
        for (after, number) in [(0, 1), (1, 2), (2, 3), (4, 5)] {
            cache.keep(news(after, number));
        }
        assert_eq!(numbers(cache.answer(0, 20)), Some((vec![1, 2, 3], false)));
        assert_eq!(cache.answer(0, 20).map(|page| page.running), Some(3), "as of the last");
        assert_eq!(numbers(cache.answer(0, 2)), Some((vec![1, 2], true)));
        assert_eq!(numbers(cache.answer(3, 20)), None, "4 was not cache");
        assert_eq!(numbers(cache.answer(4, 20)), Some((vec![5], false)));
        assert_eq!(numbers(cache.answer(5, 20)), None);
        cache.acknowledged(&["t1".into(), "t3".into()]);
        assert_eq!(numbers(cache.answer(0, 20)), None, "who begins anew asks");
        assert_eq!(numbers(cache.answer(1, 20)), Some((vec![2], false)));
        cache.clear();
        assert_eq!(cache.answer(1, 20), None);
    }

    #[test]
    fn what_is_no_answer_is_not_kept_and_what_is_kept_is_bounded() {
        let mut cache = ResultCache::default();
        let (mut none, mut two, mut more) = (news(0, 1), news(0, 1), news(0, 1));
        none.page.results.clear();
        two.page.results.push(result(2));
        more.page.more = true;
        for lie in [none, two, more, news(3, 3), news(4, 3)] {
            cache.keep(lie);
            assert!(cache.0.is_empty());
        }
        for number in 1..100 {
            cache.keep(news(number - 1, number));
        }
        cache.keep(news(0, 5));
        assert_eq!(cache.0.len(), MOST);
        assert_eq!(numbers(cache.answer(97, 20)), Some((vec![98, 99], false)));
    }

    proptest! {
        /// Against a guest whose results end, are told unless the event is lost, and acknowledged.
        #[test]
        fn an_answer_is_what_the_guest_would_say_of_all_it_told(
            steps in proptest::collection::vec((0u8..4, any::<bool>()), 0..40),
            after in 0u64..20,
        ) {
            let (mut cache, mut kept, mut last) = (ResultCache::default(), Vec::new(), 0);
            for (step, lucky) in steps {
                if step < 3 {
                    let before = kept.last().copied().unwrap_or(0);
                    last += 1;
                    kept.push(last);
                    if lucky {
                        cache.keep(news(before, last));
                    }
                } else if !kept.is_empty() {
                    let gone = kept.remove(if lucky { 0 } else { kept.len() - 1 });
                    cache.acknowledged(&[format!("t{gone}")]);
                }
            }
            if let Some((numbers, more)) = numbers(cache.answer(after, 20)) {
                let would: Vec<_> = kept.into_iter().filter(|number| *number > after).collect();
                prop_assert!(!numbers.is_empty() && would.starts_with(&numbers), "{would:?}");
                prop_assert!(!more);
            }
        }
    }
}
