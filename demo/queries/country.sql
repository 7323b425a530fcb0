-- The demo's own function: in which countries do the phones of one market segment ring?
select country(c_phone) as country, count(*) as customers, avg(c_acctbal) as balance
from customer
where c_mktsegment = 'BUILDING'
group by 1
order by customers desc, country
limit 10
