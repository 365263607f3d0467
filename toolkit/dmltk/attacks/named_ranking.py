"""Ranking attacks by name."""

from __future__ import annotations

from dmltk.attacks.named import Composed

ca_up = Composed(goal="ca-up", solver="pgd")
"""Candidate attack, raise: the picture climbs in the lists of queries that it is far from.

loss = mean over queries q and items x of [d(q, c) - d(q, x)]+, c the attacked
picture. By default pgd.

Source: Zhou et al. 2020, Adversarial ranking attack and defense, CA+
"""

ca_down = Composed(goal="ca-down", solver="pgd")
"""Candidate attack, lower: the picture falls in the lists of queries that it is near to.

loss = mean over queries q and items x of [d(q, x) - d(q, c)]+, c the attacked
picture. By default pgd.

Source: Zhou et al. 2020, Adversarial ranking attack and defense, CA-
"""

qa_up = Composed(goal="qa-up", solver="pgd")
"""Query attack, raise: bring the query nearer to candidates than to all other items.

loss = mean over candidates c and items x of [d(q, c) - d(q, x)]+. By default pgd.

Source: Zhou et al. 2020, Adversarial ranking attack and defense, QA+
"""

qa_down = Composed(goal="qa-down", solver="pgd")
"""Query attack, lower: move the query away from candidates of its own neighbourhood.

loss = mean over candidates c and items x of [d(q, x) - d(q, c)]+. By default pgd.

Source: Zhou et al. 2020, Adversarial ranking attack and defense, QA-
"""

sp_qa_up = Composed(goal="sp-qa-up", solver="pgd")
"""Query attack, raise, that keeps the nearest items on top.

loss = qa-up of the candidates + xi * qa-up of the five nearest items. By default pgd.

Source: Zhou et al. 2020, Adversarial ranking attack and defense, SP-QA+
"""

sp_qa_down = Composed(goal="sp-qa-down", solver="pgd")
"""Query attack, lower, that keeps other near items on top.

loss = qa-down of the candidates + xi * qa-up of five more near items. By default pgd.

Source: Zhou et al. 2020, Adversarial ranking attack and defense, SP-QA-
"""

ltm = Composed(goal="ltm", solver="pgd")
"""Learning to misrank: even the farthest item of another class comes before any of its own.

loss = [max over other classes of d(q, x) - min over its own of d(q, x)]+. By default pgd.

Source: Wang et al. 2020, Transferable, controllable and inconspicuous adversarial attacks on
person re-identification, as PGD
"""

gtm = Composed(goal="gtm", solver="pgd")
"""Greedy top-1 misranking: towards the nearest item of another class than the first one's.

loss = d(q, u), u that item. By default pgd.

Source: Zhou and Patel 2022, Enhancing adversarial robustness for deep metric learning
"""

gtt = Composed(goal="gtt", solver="pgd")
"""Greedy top-1 translocation: push the clean top-1 out of the first four.

loss = mean over items x of [d(q, x) - d(q, c)]+, c the clean top-1. By default pgd.

Source: Zhou and Patel 2022, Enhancing adversarial robustness for deep metric learning
"""
